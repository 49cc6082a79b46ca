package main

import (
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"github.com/goverbs/goverbs/cmd/ibvtrace/event"
	"github.com/goverbs/goverbs/cmd/ibvtrace/internal/figure"
	"github.com/goverbs/goverbs/cmd/ibvtrace/internal/filter"
	"github.com/goverbs/goverbs/cmd/ibvtrace/internal/input"
)

const figureUsage = `Usage: ibvtrace figure [-o FILE] [--title TEXT] [-e EXPR] FILE...

Draw traces that ibvtrace --json has written: a lane for each process, control
verbs dark, verbs that post and poll light, repetitions folded, the states of the
queue pairs along the lanes, and arrows from each send to the receive that it
completes. The traces of both sides, of one machine or two, go into one picture.

  -o FILE       write to FILE instead of stdout: FILE.html is a page with the verbs
                below the picture, all else an SVG
  --title TEXT  what stands above it
  -e EXPR       only what EXPR chooses, see ibvtrace -h; may be repeated
  -h            this help

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
	f.StringVar(&o.title, "title", "", "`TEXT` above the picture")
	f.Func("e", "choose events by `EXPR`; may be repeated", o.filter.Add)
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
	tell, bad := complain()
	err = input.Each(files, tell, func(source int, e *event.Event) error {
		if !o.filter.Match(e) {
			return nil
		}
		return f.Add(source, e)
	})
	if err != nil {
		return err
	}
	if f.Empty() {
		return fmt.Errorf("there are no verbs in %s", strings.Join(files, ", "))
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
