package s3rdma

import (
	"os/exec"
	"testing"

	"github.com/goverbs/goverbs/internal/rdmatest"
)

// judge runs a test of the module in the folder judges, which has peers that others have written.
func judge(t *testing.T, test string, env ...string) {
	t.Helper()
	cmd := exec.Command(rdmatest.Program(t, "judges.test"), "-test.v", "-test.run", "^"+test+"$", "-test.timeout", "0")
	cmd.Env = append(cmd.Environ(), "JUDGES_DEVICE="+rdmatest.Device)
	cmd.Env = append(cmd.Env, env...)
	p := rdmatest.StartCmd(t, cmd)
	// All of minio-go's tests may take longer than a process may that says nothing.
	n := 0
	for !p.Ended() {
		p.Until(t, func() bool { return p.Ended() || len(p.Stdout()) > n })
		more := p.Stdout()[n:]
		t.Log(more)
		n += len(more)
	}
	t.Log(p.Succeeds(t)[n:])
}

var _ = rdmatest.Test(TestS3HostClient, rdmatest.LongOn("mlx5"), rdmatest.LongOn("mlx5-eth"))

// TestS3HostClient: versitygw's own client is served over DC.
func TestS3HostClient(t *testing.T) { judge(t, "TestHostClient") }

var _ = rdmatest.Test(TestS3Minio, rdmatest.OnMLX5Eth, rdmatest.LongOn("mlx5-eth"))

// TestS3Minio: minio-go moves objects by RDMA to and from versitygw.
func TestS3Minio(t *testing.T) { judge(t, "TestMinio") }

var _ = rdmatest.Test(TestS3Functional, rdmatest.OnMLX5Eth, rdmatest.LongOn("mlx5-eth"))

// TestS3Functional: minio-go's functional tests move objects by RDMA to and from versitygw.
func TestS3Functional(t *testing.T) { judge(t, "TestFunctional") }

var _ = rdmatest.Test(TestS3AWS, rdmatest.OnMLX5, rdmatest.LongOn("mlx5"))

// TestS3AWS: aws-sdk-go-v2 moves objects by RDMA to and from versitygw.
func TestS3AWS(t *testing.T) { judge(t, "TestAWS") }

var _ = rdmatest.Test(TestS3RCServer, rdmatest.OnRXE, rdmatest.LongOn("rxe"))

// TestS3RCServer: versitygw's RC server serves a Client. versitygw breaks a rule of cgo's, and would panic.
func TestS3RCServer(t *testing.T) { judge(t, "TestRCServer", "GODEBUG=cgocheck=0") }
