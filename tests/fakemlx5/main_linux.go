// Fakemlx5 runs a program with an mlx5 device that isn't there:
//
//	fakemlx5 [FLAG...] COMMAND [ARGUMENT...]
//
// -help shows the flags, with which the device is another one.
//
// The program finds mlx5_0, opens it, and makes queues on it; whoever asks the
// kernel's uverbs is answered by this program instead. Stock libibverbs with
// libmlx5, package verbs, and programs with both can be run. Posting and
// polling go to the queues' memory as ever, past any kernel, so their cost and
// the bytes that they write can be seen on any machine.
//
// Nothing is ever executed: whoever wants completions writes them into the
// queues. A program learns where the driver put a queue by an ioctl on the
// device that only this device knows: see package rings, and rings/rings.h.
//
// How: seccomp's user notification hands over the system calls that name the
// device. It needs Linux 5.19, no privileges.
package main

import (
	"errors"
	"flag"
	"fmt"
	"log"
	"os"
	"os/exec"
)

func main() {
	log.SetFlags(0)
	log.SetPrefix("fakemlx5: ")
	if isStarter() {
		log.Fatal(starter())
	}
	flag.Usage = func() {
		fmt.Fprintln(flag.CommandLine.Output(), "usage: fakemlx5 [FLAG...] COMMAND [ARGUMENT...]")
		flag.PrintDefaults()
	}
	dev := new(device)
	flag.BoolVar(&dev.staticUARs, "static-uars", false, "hand out BlueFlame registers with the context, as drivers before Linux 5.7 did")
	flag.UintVar(&dev.bfRegSize, "bf-reg-size", 512, "length of a BlueFlame register in `bytes`, 0 for none")
	flag.BoolVar(&dev.ethernet, "ethernet", false, "the port is one of Ethernet")
	flag.BoolVar(&dev.globalOnly, "grh-required", false, "the port wants all addresses to be global")
	flag.BoolVar(&dev.noInline, "no-inline-headers", false, "want no headers of raw packets in WQEs")
	flag.BoolVar(&dev.noChecksums, "no-checksums", false, "compute no checksums of raw packets")
	flag.UintVar(&dev.maxTSO, "max-tso", 1<<18, "`bytes` of data that one request segments, 0 for none")
	flag.BoolVar(&dev.noAtomics, "no-atomics", false, "have no atomic operations")
	flag.IntVar(&dev.atomicOps, "atomic-ops", 15, "the `bits` of those that there are")
	flag.UintVar(&dev.cqeVersion, "cqe-version", 1, "`version` of completion queue entries")
	flag.BoolVar(&dev.verbose, "v", false, "show each call")
	flag.Parse()
	if flag.NArg() == 0 {
		flag.Usage()
		os.Exit(2)
	}
	path, err := exec.LookPath(flag.Arg(0))
	if err != nil && !errors.Is(err, exec.ErrDot) {
		log.Fatal(err)
	}
	root, err := os.MkdirTemp("", "fakemlx5")
	if err != nil {
		log.Fatal(err)
	}
	code, err := run(root, dev, append([]string{path}, flag.Args()...))
	os.RemoveAll(root)
	if err != nil {
		log.Fatal(err)
	}
	os.Exit(code)
}

// run returns the program's exit status.
func run(root string, dev *device, argv []string) (int, error) {
	if err := plant(root); err != nil {
		return 0, err
	}
	cmd, listener, err := start(argv)
	if err != nil {
		return 0, err
	}
	s := &supervisor{listener: listener, root: root, dev: dev}
	done := make(chan error, 1)
	go func() { done <- s.serve() }()
	err = cmd.Wait()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		return 0, err
	}
	if err := <-done; err != nil {
		return 0, err
	}
	if code := cmd.ProcessState.ExitCode(); code >= 0 {
		return code, nil
	}
	return 1, fmt.Errorf("%s: %v", argv[0], cmd.ProcessState)
}
