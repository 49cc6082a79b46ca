package export

import (
	"cmp"
	"context"
	"crypto/tls"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"time"

	"github.com/goverbs/goverbs/cmd/ibv/internal/cli"
	"github.com/goverbs/goverbs/cmd/ibv/internal/why"
	"github.com/goverbs/goverbs/rdmanl"
	"github.com/goverbs/goverbs/verbs"
)

// options are the command line.
type options struct {
	listen, web, file, prefix string
	interval                  time.Duration
	most                      int
	once                      bool
}

// Export is the command export.
func Export() *cli.Command {
	o := options{prefix: "rdma", interval: 15 * time.Second, most: 100}
	return &cli.Command{
		Name:    "export",
		Group:   cli.Look,
		Summary: "serve the figures of devices to Prometheus",
		Forms: []string{
			"[-l ADDR:PORT] [OPTION...]",
			"--textfile FILE [OPTION...]",
			"--once [OPTION...]",
		},
		About: `Serve at http://ADDR:PORT/metrics, as OpenMetrics or in Prometheus's text format: states,
rates and counters of ports; events of links; objects, and who has them, with cgroup,
container and pod; queue pairs that are stuck, by the rules of ibv why. Counters have the
names of node_exporter's infiniband collector, with rdma for node_infiniband.

It opens no device. Any user can run it, but only root (CAP_NET_ADMIN) sees all that is
stuck. docs/export.md has rules for alerts, a dashboard, a unit for systemd and a
DaemonSet for Kubernetes.`,
		Options: []cli.Option{
			cli.Opt('l', "listen", "ADDR:PORT", "serve here (default localhost:9879)", cli.Text(&o.listen)),
			cli.Opt(0, "web.config.file", "FILE", "serve by TLS: the file is that of Prometheus's exporters, without passwords", cli.Text(&o.web)),
			cli.Opt(0, "textfile", "FILE", "write to this file, for node_exporter's textfile collector", cli.Text(&o.file)),
			cli.Flag(0, "once", "print once, or write the file once, and end; status 1 if something is missing", &o.once),
			cli.Opt('i', "interval", "TIME", "how often to look for stuck queue pairs, and to write the file (default 15s)", cli.Period(&o.interval)),
			cli.Opt(0, "prefix", "WORD", "begin names with this (default rdma)", func(value string) error {
				o.prefix = value
				if value == "" || strings.Trim(value, "abcdefghijklmnopqrstuvwxyz_") != "" {
					return fmt.Errorf("%q has other characters than a to z and _", value)
				}
				return nil
			}),
			cli.Opt(0, "most", "N", "processes with figures of their own: those that register the most (default 100)", cli.Int(&o.most, 0, 1e6)),
		},
		Examples: []cli.Example{
			{"ibv export", "serve this host's figures to it alone"},
			{"ibv export -l :9879", "serve all hosts"},
			{"ibv export -l :9879 --web.config.file web.yml", "to those with a certificate"},
			{"ibv export --textfile /var/lib/prometheus/node-exporter/rdma.prom", "for node_exporter"},
		},
		Run: func([]string) error { return o.run() },
	}
}

func (o *options) run() error {
	if (o.web != "" || o.listen != "") && (o.once || o.file != "") {
		return cli.Usagef("--listen and --web.config.file go neither with --once nor with --textfile")
	}
	if runtime.GOOS != "linux" {
		return fmt.Errorf("%w on %s", verbs.ErrNotSupported, runtime.GOOS)
	}
	ctx, stop := cli.Interruptible()
	defer stop()
	host := why.This()
	e := &exporter{source: system{host}, root: "/", prefix: o.prefix, most: o.most, report: cli.Reporter(), watch: rdmanl.Watch, links: make(map[link]int)}
	looker := why.NewLooker(host)
	if o.once {
		return o.print(ctx, e, looker)
	}
	go e.follow(ctx, o.interval)
	tick := time.NewTicker(o.interval)
	defer tick.Stop()
	if o.file != "" {
		for ctx.Err() == nil {
			e.lookOnce(ctx, looker)
			if err := write(o.file, e.collect(ctx).text(false)); err != nil {
				return err
			}
			select {
			case <-ctx.Done():
			case <-tick.C:
			}
		}
		return nil // a service that is stopped has not failed
	}
	l, err := net.Listen("tcp", cmp.Or(o.listen, "localhost:9879"))
	if err != nil {
		return err
	}
	scheme := "http"
	if o.web != "" {
		c, err := secure(o.web, e.report)
		if err != nil {
			l.Close()
			return err
		}
		l, scheme = tls.NewListener(l, c), "https"
	}
	context.AfterFunc(ctx, func() { l.Close() })
	cli.Printf("serving at %s://%v/metrics\n", scheme, l.Addr())
	go func() {
		for ctx.Err() == nil {
			e.lookOnce(ctx, looker)
			select {
			case <-ctx.Done():
			case <-tick.C:
			}
		}
	}()
	if err := e.serve(ctx, l); ctx.Err() == nil {
		return err
	}
	return nil
}

// print looks twice, and prints or writes what it has seen.
func (o *options) print(ctx context.Context, e *exporter, looker *why.Looker) error {
	e.lookOnce(ctx, looker)
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-time.After(min(o.interval, time.Second)):
	}
	e.lookOnce(ctx, looker)
	text := e.collect(ctx).text(false)
	if o.file != "" {
		if err := write(o.file, text); err != nil {
			return err
		}
	} else {
		cli.Print(string(text))
	}
	if len(e.told["look"])+len(e.told["collect"]) > 0 {
		return cli.ErrReported
	}
	return nil
}

// write replaces a file, so that a reader sees the old or the new one.
func write(name string, text []byte) error {
	if is, err := os.Lstat(name); err == nil && !is.Mode().IsRegular() {
		return fmt.Errorf("%s is no regular file, and isn't replaced by one", name)
	}
	f, err := os.CreateTemp(filepath.Dir(name), "."+filepath.Base(name)+".*")
	if err != nil {
		return err
	}
	defer os.Remove(f.Name()) // unless it was renamed
	if _, err = f.Write(text); err == nil {
		err = f.Chmod(0o644)
	}
	if failed := f.Close(); err == nil {
		err = failed
	}
	if err == nil {
		err = os.Rename(f.Name(), name)
	}
	return err
}
