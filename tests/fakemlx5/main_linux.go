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
	"flag"

	"github.com/goverbs/goverbs/tests/internal/fakedev"
)

func main() {
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
	fakedev.Main("fakemlx5", dev)
}
