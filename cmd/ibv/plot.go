package main

import (
	"errors"
	"flag"

	"github.com/goverbs/goverbs/cmd/ibv/internal/perftest"
	"github.com/goverbs/goverbs/cmd/ibv/internal/plot"
)

const plotUsage = `Usage: ibv plot [-o FILE] RESULT...

Draw results of measurements, several in one picture to compare. They are files that
the commands of measurement write with --json: ibv write_lat --json HOST > RESULT

  -o FILE   the picture, which ends with .svg or .html (default plot.svg)
  -h        show this help

Examples:
  ibv write_bw -a --json 192.168.77.1 > before.json
        measure now
  ibv plot -o compared.html before.json after.json
        and compare with what was measured later
`

// plotResults is the command plot.
func plotResults(args []string) int {
	f := flag.NewFlagSet("plot", flag.ContinueOnError)
	name := f.String("o", "plot.svg", "")
	if status, ok := parse(f, plotUsage, args); !ok {
		return status
	}
	if err := plot.Check(*name); err != nil {
		return wrongUsage(f.Name(), err)
	}
	if f.NArg() == 0 {
		return wrongUsage(f.Name(), errors.New("it needs a result"))
	}
	if err := drawFiles(*name, f.Args()); err != nil {
		return failed(f.Name(), err)
	}
	return exitOK
}

func drawFiles(picture string, files []string) error {
	var results []*perftest.Result
	for _, file := range files {
		r, err := perftest.ReadResult(file)
		if err != nil {
			return err
		}
		results = append(results, r)
	}
	page, err := perftest.Draw(results...)
	if err != nil {
		return err
	}
	return page.WriteFile(picture)
}
