// Ibv shows and tests RDMA devices. It is one static program that needs nothing
// else installed. 'ibv -h' lists its commands, and docs/programs.md the programs
// that they replace. Under the name of such a program, for example as a link
// ib_send_bw, ibv behaves as that program.
//
// The exit status is 0 after success, 1 after a failure, 2 after wrong usage.
package main

import (
	"os"
	"slices"

	"github.com/goverbs/goverbs/cmd/ibv/internal/cli"
	"github.com/goverbs/goverbs/cmd/ibv/internal/cm"
	"github.com/goverbs/goverbs/cmd/ibv/internal/diags"
	"github.com/goverbs/goverbs/cmd/ibv/internal/doctor"
	"github.com/goverbs/goverbs/cmd/ibv/internal/export"
	"github.com/goverbs/goverbs/cmd/ibv/internal/ibstat"
	"github.com/goverbs/goverbs/cmd/ibv/internal/info"
	"github.com/goverbs/goverbs/cmd/ibv/internal/mesh"
	"github.com/goverbs/goverbs/cmd/ibv/internal/perftest"
	"github.com/goverbs/goverbs/cmd/ibv/internal/pingpong"
	"github.com/goverbs/goverbs/cmd/ibv/internal/rdma"
	"github.com/goverbs/goverbs/cmd/ibv/internal/selftest"
	"github.com/goverbs/goverbs/cmd/ibv/internal/sockets"
	"github.com/goverbs/goverbs/cmd/ibv/internal/top"
	"github.com/goverbs/goverbs/cmd/ibv/internal/why"
	"github.com/goverbs/goverbs/cmd/ibv/internal/xfer"
	// Unlike rxe and mlx5, these providers are not part of every program.
	_ "github.com/goverbs/goverbs/provider/efa"
	_ "github.com/goverbs/goverbs/provider/siw"
)

func main() { os.Exit(program().Main(os.Args)) }

// program returns all commands.
func program() *cli.Set {
	s := &cli.Set{
		Name:  "ibv",
		About: "Show and test RDMA devices.",
		Commands: slices.Concat([]*cli.Command{
			info.Devices(), info.Info(), ibstat.Ibstat(), ibstat.Ibstatus(), top.Top(), doctor.Doctor(), why.Why(), export.Export(), info.Asyncwatch(),
			rdma.Dev(), rdma.Link(), rdma.Resource(), rdma.Stat(), rdma.Monitor(), rdma.System(), rdma.Rdma(),
		}, perftest.Commands(), []*cli.Command{
			cm.Cmtime(), mesh.Mesh(), xfer.Xfer(), perftest.Plot(),
			pingpong.Pingpong(), cm.Rping(), cm.Ucmatose(), cm.Udaddy(), cm.Mckey(),
			sockets.Rstream(), sockets.Riostream(), sockets.Udpong(), sockets.Rcopy(), sockets.Proxy(),
			diags.Ibaddr(), diags.Ibping(), diags.Sminfo(), diags.Smpquery(), diags.Perfquery(), diags.Ibnetdiscover(), diags.Iblinkinfo(),
			diags.Ibtracert(), diags.Saquery(),
			selftest.Selftest(),
		}),
		Examples: []cli.Example{
			{"ibv devices", "which devices are there"},
			{"ibv info -d rxe0 -v", "everything about one, its GIDs included"},
			{"ibv doctor", "why doesn't it work"},
			{"ibv pingpong -h", "how to run a command"},
		},
		Notes: "'ibv --version' prints the version. Exit status: 0 after success, 1 after a failure, 2 after wrong usage.",
	}
	s.Commands = append(s.Commands, links(s), completion(s), man(s))
	return s
}
