package main

import (
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"github.com/goverbs/goverbs/cmd/ibvtrace/internal/figure"
	"github.com/goverbs/goverbs/cmd/ibvtrace/internal/filter"
	"github.com/goverbs/goverbs/cmd/ibvtrace/internal/input"
	"github.com/goverbs/goverbs/internal/tracing/event"
)

const figureUsage = `Usage: ibvtrace figure [-o FILE] [--title TEXT] [-e EXPR] FILE...

Draw traces that ibvtrace --json has written. Each process has a lane. Control
verbs are dark, data verbs are light, and repetitions are folded. The states of the
queue pairs are drawn along the lanes. An arrow leads from each send to the receive
that it completes. The traces of both sides, from one machine or two, make one figure.

  -o FILE       write to FILE instead of stdout: FILE.html is a page with the verbs
                below the figure, any other FILE is an SVG
  --title TEXT  the title above the figure
  -e EXPR       only events that EXPR selects, see ibvtrace -h; may be repeated
  -h            print this help

Examples:
  ibvtrace -e all --json -o server.json ib_send_bw -d rxe0
  ibvtrace -e all --json -o client.json ib_send_bw -d rxe0 192.168.1.2
  ibvtrace figure server.json client.json -o figure.svg
  ibvtrace figure --title 'What ib_send_bw does' -e '!map,open' -o figure.html server.json
`

type figureOptions struct {
	output string
	title  string
	filter filter.Filter
}

func figureFlags(o *figureOptions) *flag.FlagSet {
	f := flag.NewFlagSet("ibvtrace figure", flag.ContinueOnError)
	f.SetOutput(io.Discard)
	f.StringVar(&o.output, "o", "", "write to `FILE`, .svg or .html")
	f.StringVar(&o.title, "title", "", "`TEXT` above the figure")
	f.Func("e", "select events by `EXPR`; may be repeated", o.filter.Add)
	return f
}

// drawFigure draws traces that --json has written.
func drawFigure(args []string) error {
	var o figureOptions
	files, err := parseFiles(figureFlags(&o), args)
	if err != nil {
		return err
	}
	if len(files) == 0 {
		return errNoFiles
	}
	f := figure.New()
	f.Title = o.title
	for _, name := range files {
		f.Sources = append(f.Sources, filepath.Base(name))
	}
	report, bad := complain()
	err = input.Each(files, report, func(source int, e *event.Event) error {
		if !o.filter.Match(e) {
			return nil
		}
		return f.Add(source, e)
	})
	if err != nil {
		return err
	}
	if f.Empty() {
		return fmt.Errorf("no verbs in %s", strings.Join(files, ", "))
	}
	out, err := openOutput(o.output, os.Stdout)
	if err != nil {
		return err
	}
	draw := f.SVG
	if ext := strings.ToLower(filepath.Ext(o.output)); ext == ".html" || ext == ".htm" {
		draw = f.HTML
	}
	if err := draw(out); err != nil {
		return err
	}
	out.close()
	switch {
	case out.err != nil:
		return out.err
	case *bad:
		return errBad
	}
	return nil
}
