package mlx5

import (
	"encoding/binary"
	"fmt"
	"os"

	"github.com/goverbs/goverbs/internal/mmio"
	"github.com/goverbs/goverbs/ioctl"
	"github.com/goverbs/goverbs/provider"
	"github.com/goverbs/goverbs/uapi"
)

// dm is memory of the adapter (MEMIC). It begins anywhere in its first page. It is mapped as
// write-combining memory, and the adapter takes accesses of multiples of 4 bytes at such
// addresses only.
type dm struct {
	file  *ioctl.File
	n     int
	start *uint64 // the answer: where the memory begins in its first page
	page  *uint16

	pages []byte
	words []uint32
	at    uint64 // where the file maps it
	in    uint64
}

func (c *context) NewDM(cmd ioctl.DmAlloc, n int) (provider.DM, error) {
	return &dm{file: c.file, n: n, start: cmd.Mlx5RespStartOffset(), page: cmd.Mlx5RespPageIndex()}, nil
}

func (d *dm) Adopt() error {
	size := os.Getpagesize()
	d.in = *d.start & uint64(size-1)
	d.at = mmapOffset(uapi.MLX5_IB_MMAP_DEVICE_MEM, int(*d.page))
	d.start, d.page = nil, nil
	// The kernel's pages are those for n bytes from a page's beginning.
	length := (d.n + size - 1) &^ (size - 1)
	if d.in%4 != 0 || int(d.in)+(d.n+3)&^3 > length {
		return fmt.Errorf("mlx5: the kernel allocated memory of the adapter at %#x of its page, for %d bytes", d.in, d.n)
	}
	pages, err := d.file.Mmap(d.at, length)
	if err != nil {
		return fmt.Errorf("mlx5: map memory of the adapter: %w", err)
	}
	d.pages = pages
	d.words = wordsOf(pages[d.in:], (d.n+3)/4)
	return nil
}

func (d *dm) Mapping() (offset, start uint64) { return d.at, d.in }

// Store ends with the stores on their way to the adapter, so that a work request that is
// posted later, here or by a peer, finds them.
func (d *dm) Store(off int, from []byte) {
	words := d.words[off/4:][:len(from)/4]
	for i := range words {
		words[i] = binary.NativeEndian.Uint32(from[4*i:])
	}
	mmio.FlushWrites()
}

func (d *dm) Load(to []byte, off int) {
	words := d.words[off/4:][:len(to)/4]
	for i := range words {
		binary.NativeEndian.PutUint32(to[4*i:], mmio.Load32(&words[i]))
	}
}

func (d *dm) Release() {
	ioctl.Munmap(d.pages)
	d.pages, d.words = nil, nil
}
