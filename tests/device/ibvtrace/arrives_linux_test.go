package ibvtrace

import (
	"path/filepath"
	"testing"

	"github.com/goverbs/goverbs/internal/rdmatest"
)

// TestArrives: ibvtrace shows a process's calls on files that another process has opened,
// however the descriptors were passed. The connection manager accepts calls only from the
// process that opened the file.
func TestArrives(t *testing.T) {
	program, file := rdmatest.CProgram(t, "c/arrives.c"), filepath.Join(t.TempDir(), "trace")
	for how, refused := range map[string]string{
		"daemon": "EACCES", "parent": "EACCES", "recvmsg": "EACCES", "recvmmsg": "EACCES", "getfd": "EACCES", "vectors": "",
	} {
		t.Run(how, func(t *testing.T) {
			script := append(stopped(t, file), "sh", "-c", `echo x | "$@"`, "sh", program, how, uverbs, rdmaCM, "20")
			rdmatest.Start(t, script...).Succeeds(t)
			shown, files := make(map[string]int), make(map[int]bool)
			for _, e := range rdmatest.ReadTrace(t, file) {
				switch e.Verb {
				case "ibv_dealloc_pd":
					if !e.Failed() || e.Device == "" {
						t.Errorf("%s on %q: %q", e.Verb, e.Device, e.Errno)
					}
				case "rdma_create_id":
					if e.Errno != refused {
						t.Errorf("%s: %q, want %q", e.Verb, e.Errno, refused)
					}
				default:
					continue
				}
				shown[e.Verb]++
				files[e.File] = true
			}
			if shown["ibv_dealloc_pd"] != 20 || shown["rdma_create_id"] != 20 || len(files) != 2 {
				t.Errorf("files %v, events %v", files, shown)
			}
		})
	}
}
