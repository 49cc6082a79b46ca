package pingpong

import (
	"fmt"
	"io"
	"os"
)

// The data that both sides expect with --chk. Each page begins with a zero, which
// is all that rdma-core's programs check. The rest is the transport's fill byte.

func fillPages(b []byte, fill byte) {
	for i := range b {
		b[i] = fill
	}
	for i := 0; i < len(b); i += os.Getpagesize() {
		b[i] = 0
	}
}

// checkPages writes the numbers of the pages that differ to w, as rdma-core's
// programs do.
func checkPages(w io.Writer, b []byte, fill byte) error {
	size := os.Getpagesize()
	bad := 0
	for page := 0; page*size < len(b); page++ {
		data := b[page*size : min((page+1)*size, len(b))]
		if !isPage(data, fill) {
			fmt.Fprintf(w, "invalid data in page %d\n", page)
			bad++
		}
	}
	if bad > 0 {
		return fmt.Errorf("%d pages have invalid data", bad)
	}
	return nil
}

func isPage(data []byte, fill byte) bool {
	for i, v := range data {
		if i == 0 && v != 0 || i > 0 && v != fill {
			return false
		}
	}
	return true
}
