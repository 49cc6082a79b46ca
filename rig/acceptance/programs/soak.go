//go:build linux

package main

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/goverbs/goverbs/rig/internal/control"
)

// A round is one kind of a soak's rounds.
type round struct {
	name  string
	wire  control.Request   // for games
	fits  func(c game) bool // which games may run in it
	upset func() error      // a failure to provoke, instead of games
}

func anything(game) bool { return true }

// reliable reports whether a game tolerates lost packets.
func reliable(c game) bool {
	return !strings.Contains(c.program, "_uc_") && !strings.Contains(c.program, "_ud_") &&
		!slices.Contains(c.args, "UC") && !slices.Contains(c.args, "UD")
}

// No fatal errors, because the driver recovers from only one in 20 minutes.
var rounds = []round{
	{name: "nothing", fits: anything},
	{name: "delays", wire: control.Request{Delay: 200_000, Jitter: 100_000}, fits: reliable},
	{name: "1 % lost", wire: control.Request{Drop: 0.01}, fits: reliable},
	{name: "1 % lost, twice or reordered", wire: control.Request{Drop: 0.01, Duplicate: 0.01, Reorder: 0.01}, fits: reliable},
	{name: "programs killed", upset: killed},
	{name: "port down and up", upset: portDown},
	{name: "modules removed and loaded", upset: reloaded},
	{name: "device removed and found again", upset: removed},
	{name: "page faults", upset: pageFaults},
}

// together is how many games run at the same time.
const together = 3

// soak runs random rounds until the limit. Games have to succeed whatever the fabric
// does, and the devices and the kernel have to recover fully from all provoked failures.
func soak(limit time.Duration, seed uint64) error {
	if err := load(); err != nil {
		return err
	}
	// Since Linux 6.12, mlx5_ib creates its own CQ and QP at a device's first use.
	if err := (guest{}).play(game{"ibv_rc_pingpong", []string{"-c", "-n", "100"}}); err != nil {
		return err
	}
	log, err := openKernelLog()
	if err != nil {
		return err
	}
	fmt.Println("seed", seed)
	r := rand.New(rand.NewPCG(seed, 0))
	begin := time.Now()
	var turns []round
	n := 0
	for ; time.Since(begin) < limit; n++ {
		if len(turns) == 0 { // each once, before any is repeated
			turns = slices.Clone(rounds)
			r.Shuffle(len(turns), func(i, j int) { turns[i], turns[j] = turns[j], turns[i] })
		}
		x := turns[0]
		turns = turns[1:]
		var list []game
		if x.upset == nil {
			all := slices.DeleteFunc(games(false, true), func(c game) bool { return !x.fits(c) })
			for i := range together {
				c := all[r.IntN(len(all))]
				c.args = append(slices.Clone(c.args), "-p", strconv.Itoa(20000+i))
				list = append(list, c)
			}
		}
		fmt.Printf("%8v  %s %v\n", time.Since(begin).Round(time.Second), x.name, list)
		if err := errors.Join(x.play(list), log.objections()); err != nil {
			return fmt.Errorf("round %d of seed %d: %s: %w", n, seed, x.name, err)
		}
	}
	err = inOrder(reloaded, log.objections)
	fmt.Printf("%d rounds in %v\n", n, time.Since(begin).Round(time.Second))
	return err
}

func (x round) play(list []game) error {
	if x.upset != nil {
		return troubleCase{x.name, x.upset}.play()
	}
	before, err := count()
	if err != nil {
		return err
	}
	x.wire.Do = "faults"
	if err := x.wire.Ask(); err != nil {
		return err
	}
	played := make(chan error)
	for _, c := range list {
		go func() { played <- guest{}.play(c) }()
	}
	for range list {
		err = errors.Join(err, <-played)
	}
	return errors.Join(err, control.Request{Do: "faults"}.Ask(), before.returns())
}

// A kernelLog reads the kernel's messages from its opening on.
type kernelLog struct{ fd int }

func openKernelLog() (*kernelLog, error) {
	fd, err := syscall.Open("/dev/kmsg", syscall.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return nil, os.NewSyscallError("open /dev/kmsg", err)
	}
	_, err = syscall.Seek(fd, 0, 2)
	return &kernelLog{fd}, err
}

// objectionable matches the kernel's messages about failures, besides those that
// rig/run looks for. Most important are those about commands that time out.
var objectionable = regexp.MustCompile(`(?i)cmd.*fail|health|timeout|timed out|leak|lockup|hung|corrupt|warning: |bug: `)

// objections returns the kernel's objectionable messages since the last call.
func (l *kernelLog) objections() (err error) {
	b := make([]byte, 8192)
	for {
		n, e := syscall.Read(l.fd, b)
		switch {
		case e == syscall.EAGAIN:
			return err
		case e == syscall.EPIPE: // messages were overwritten
			continue
		case e != nil:
			return errors.Join(err, e)
		}
		if _, text, _ := strings.Cut(string(b[:n]), ";"); objectionable.MatchString(text) {
			err = errors.Join(err, errors.New("the kernel reports: "+text))
		}
	}
}
