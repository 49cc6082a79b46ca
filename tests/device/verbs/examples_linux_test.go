// The Examples of package verbs do what they say: they run here on devices. Their files are
// links to those of the package.
package verbs_test

import (
	"io"
	"os"
	"regexp"
	"testing"

	"github.com/goverbs/goverbs/internal/rdmatest"
)

func TestMain(m *testing.M) {
	rdmatest.Main(m, rdmatest.OnRXE, rdmatest.OnMLX5, rdmatest.OnMLX5Eth)
}

// A test of an example: its name, and a pattern of what it prints.
type example struct {
	name   string
	run    func()
	prints string
}

func run(t *testing.T, examples ...example) {
	for _, e := range examples {
		t.Run(e.name, func(t *testing.T) {
			if got := printed(t, e.run); !regexp.MustCompile("^(?:" + e.prints + ")$").MatchString(got) {
				t.Errorf("it prints\n%s, want\n%s", got, e.prints)
			}
		})
	}
}

func TestVerbsExamples(t *testing.T) {
	mlx5 := rdmatest.KindOf() == rdmatest.MLX5
	arrival := "the device has no timestamps\n"
	paged := "the device can't page\n"
	if mlx5 {
		arrival = `one came at \d{4}-.*, another \d+ µs later\n`
	}
	if mlx5 || rdmatest.Kernel(t).AtLeast(6, 16) {
		paged = "last page: 7\n"
	}
	run(t,
		example{"package", Example, `RECV: "hello, verbs"\n`},
		example{"CQ.All", ExampleCQ_All, `(?:(?:Ann: "from Ann"|Ben: "from Ben"|Cid: "from Cid")\n){3}`},
		example{"CompChannel", ExampleCompChannel, `(?:CQ [012]: RECV of 5 bytes\n){3}`},
		example{"CQ.PollEx", ExampleCQ_PollEx, arrival},
		example{"Device.Events", ExampleDevice_Events, `(?:.*\n)*no more events\n`},
		example{"QP.Connect", ExampleQP_Connect, `"over UC"\n`},
		example{"PD.CreateAHFromWC", ExamplePD_CreateAHFromWC, `"question"\n"answer"\n`},
		example{"SRQ", ExampleSRQ, "receive 0 took message 0 of its QP: true\nreceive 1 took message 1 of its QP: true\n"},
		example{"MR.Remote", ExampleMR_Remote, "before an addition: 5\nbefore an exchange: 8\nat the end: 100\n"},
		example{"QP.Sends", ExampleQP_Sends, `2 requests, completion of 2: "one after other"\n`},
		example{"MW", ExampleMW, `"through it"\nREM_ACCESS_ERR\n`},
		example{"PD.AdviseMR", ExamplePD_AdviseMR, paged},
		example{"BufferPool", ExampleBufferPool, `"from a pool"\n`},
	)
}

var _ = rdmatest.Test(TestVerbsExamplesOnMLX5, rdmatest.OnMLX5, rdmatest.OnMLX5Eth)

func TestVerbsExamplesOnMLX5(t *testing.T) {
	run(t,
		example{"XRCD", ExampleXRCD, `"for SRQ 0"\n"for SRQ 1"\n`},
		example{"dynamicallyConnected", Example_dynamicallyConnected, `"for target 0"\n"for target 1"\n`},
	)
	if _, err := os.Stat("/dev/udmabuf"); err == nil { // Debian's 6.1 has none
		run(t, example{"PD.RegDmabufMR", ExamplePD_RegDmabufMR, `"by the device"\n`})
	}
	if rdmatest.RoCE {
		run(t, example{"rawEthernet", Example_rawEthernet, `"raw"\n`})
	}
}

// printed returns what a function prints, which is less than a pipe holds.
func printed(t *testing.T, f func()) string {
	r, w, err := os.Pipe()
	rdmatest.Check(t, err)
	defer r.Close()
	stdout := os.Stdout
	os.Stdout = w
	defer func() { os.Stdout = stdout }()
	f()
	rdmatest.Check(t, w.Close())
	return string(rdmatest.Must(io.ReadAll(r))(t))
}
