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

// A dm is memory of the adapter (MEMIC), mapped as write-combining. It may begin anywhere in its
// first page. The adapter takes only accesses whose length and address are multiples of 4.
type dm struct {
	file  *ioctl.File
	n     int
	start *uint64 // the response: the memory's offset in its first page
	page  *uint16

	pages []byte
	words []uint32
	at    uint64 // the file's offset for mapping the memory
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
	// The kernel maps as many pages as n bytes need from the start of a page.
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

// Store flushes its stores to the adapter, so that a later work request, from this side or
// a peer, finds the data.
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
