package ibv

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/goverbs/goverbs/internal/rdmatest"
)

// slurmConfig is for nodes that are all on this host. SelectType lets them share its processors.
const slurmConfig = `
ClusterName=test
SlurmctldHost=%[1]s(127.0.0.1)
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
AuthInfo=socket=%[2]s/munge.socket
CredType=cred/munge
SlurmctldPort=16817
StateSaveLocation=%[2]s
SlurmdSpoolDir=%[2]s/%%n
SlurmctldPidFile=%[2]s/slurmctld.pid
SlurmdPidFile=%[2]s/%%n.pid
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/none
SwitchType=switch/none
MpiDefault=none
SlurmdParameters=config_overrides
NodeName=node-[0-%[3]d] NodeHostname=%[1]s NodeAddr=127.0.0.1 Port=[16820-%[4]d] CPUs=1
PartitionName=all Nodes=ALL Default=YES State=UP
`

// startSlurm starts Slurm's daemons for nodes named node-0, node-1 and so on.
func startSlurm(t *testing.T, nodes int) {
	t.Helper()
	dir := t.TempDir()
	host, _, _ := strings.Cut(rdmatest.Must(os.Hostname())(t), ".")
	config := filepath.Join(dir, "slurm.conf")
	rdmatest.Check(t, os.WriteFile(config, fmt.Appendf(nil, slurmConfig, host, dir, nodes-1, 16820+nodes-1), 0o644))
	t.Setenv("SLURM_CONF", config)
	// slurmd requires control groups, which systemd would have made.
	const groups = "/sys/fs/cgroup"
	rdmatest.Check(t, os.WriteFile(filepath.Join(dir, "cgroup.conf"), []byte("CgroupPlugin=cgroup/v2\nIgnoreSystemd=yes\n"), 0o644))
	rdmatest.Check(t, unix.Mount("none", groups, "cgroup2", 0, ""))
	t.Cleanup(func() { rdmatest.Check(t, unix.Unmount(groups, unix.MNT_DETACH)) })
	rdmatest.Check(t, os.MkdirAll(filepath.Join(groups, "system.slice"), 0o755))
	key := filepath.Join(dir, "munge.key")
	rdmatest.Check(t, os.WriteFile(key, make([]byte, 64), 0o400))

	socket := filepath.Join(dir, "munge.socket")
	munged := rdmatest.Start(t, "munged", "--foreground", "--force", "--key-file", key, "--socket", socket, "--pid-file", filepath.Join(dir, "munged.pid"),
		"--log-file", filepath.Join(dir, "munged.log"), "--seed-file", filepath.Join(dir, "munged.seed"))
	munged.Until(t, func() bool {
		_, err := os.Stat(socket)
		return err == nil
	})
	controller := rdmatest.Start(t, "slurmctld", "-D", "-c")
	for i := range nodes {
		rdmatest.Start(t, "slurmd", "-D", "-c", "-N", fmt.Sprintf("node-%d", i))
	}
	controller.Until(t, func() bool {
		info := rdmatest.Start(t, "sinfo", "--noheader", "--states", "idle", "--format", "%D")
		info.Wait()
		return strings.TrimSpace(info.Stdout()) == fmt.Sprint(nodes)
	})
}
