// Fakemlx5 runs a program with a fake mlx5 device:
//
//	fakemlx5 [FLAG...] COMMAND [ARGUMENT...]
//
// -help shows the flags, which change the device's properties.
//
// The program finds mlx5_0, opens it, and creates queues on it. Fakemlx5 answers its
// uverbs calls instead of the kernel. The program may use stock libibverbs with libmlx5,
// package verbs, or both. Posting and polling access the queues' memory without the kernel
// as usual, so their cost and the bytes that they write can be observed on any machine.
//
// The device doesn't execute requests: the program itself writes completions into the
// queues. It learns the location of a queue with an ioctl that only this device has: see
// package rings, and rings/rings.h.
//
// Fakemlx5 gets the system calls that concern the device through seccomp's user
// notification. It needs Linux 5.19, but no privileges.
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
	flag.BoolVar(&dev.staticUARs, "static-uars", false, "allocate BlueFlame registers with the context, as drivers before Linux 5.7 did")
	flag.UintVar(&dev.uarsPerPage, "uars-per-page", 1, "the `number` of UARs in a page: on a system with pages of 64 KiB, 16")
	flag.UintVar(&dev.bfRegSize, "bf-reg-size", 512, "length of a BlueFlame register in `bytes`, 0 for none")
	flag.BoolVar(&dev.ethernet, "ethernet", false, "the port is an Ethernet port")
	flag.BoolVar(&dev.globalOnly, "grh-required", false, "the port requires global addresses (GRH)")
	flag.BoolVar(&dev.noInline, "no-inline-headers", false, "require no inline headers of raw packets")
	flag.BoolVar(&dev.noChecksums, "no-checksums", false, "no checksum offload of raw packets")
	flag.UintVar(&dev.maxTSO, "max-tso", 1<<18, "the maximum `bytes` of data in a TSO request, 0 for no TSO")
	flag.BoolVar(&dev.noAtomics, "no-atomics", false, "no atomic operations")
	flag.IntVar(&dev.atomicOps, "atomic-ops", 15, "the `bits` of the supported atomic operations")
	flag.UintVar(&dev.cqeVersion, "cqe-version", 1, "the `version` of completion queue entries")
	flag.BoolVar(&dev.verbose, "v", false, "print each call")
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
