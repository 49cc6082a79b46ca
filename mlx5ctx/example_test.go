package mlx5ctx_test

import (
	"encoding/hex"
	"fmt"
	"log"
	"os"
	"strings"

	"github.com/goverbs/goverbs/mlx5ctx"
)

// A program would get the dumps of a device's queue pairs from rdmanl.Raws. This one was recorded.
func ExampleQPFromDump() {
	text, err := os.ReadFile("testdata/qp")
	if err != nil {
		log.Fatal(err)
	}
	dump, err := hex.DecodeString(strings.TrimSpace(string(text)))
	if err != nil {
		log.Fatal(err)
	}
	q, err := mlx5ctx.QPFromDump(dump)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Printf("%v queue pair in %v, packets of %d bytes\n", q.Service, q.State, q.MTU.Bytes())
	fmt.Printf("%d of %d blocks wait, %d packets are unacknowledged\n", q.Waiting(), q.SendBlocks, q.Unacknowledged())
	fmt.Printf("%d of %d receives wait\n", q.Receivable(), q.RecvRequests)
	// Output:
	// RC queue pair in RTS, packets of 4096 bytes
	// 0 of 128 blocks wait, 0 packets are unacknowledged
	// 0 of 4 receives wait
}
