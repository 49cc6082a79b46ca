// Package input reads traces in JSON, and merges them.
package input

import (
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"github.com/goverbs/goverbs/internal/tracing/event"
)

// Each calls f for the events of all files, in the order in which they ended. source is the
// index of the event's file. "-" is the standard input. Each renumbers the open files
// ([event.Event].File), so that different traces have different numbers. It skips lines that
// are not events, and passes an error to complain. It decompresses files whose names end in .gz.
func Each(files []string, complain func(error), f func(source int, e *event.Event) error) error {
	sources := make([]*source, len(files))
	for i, name := range files {
		s := &source{name: name, complain: complain}
		if name == "-" {
			s.r = event.NewReader(os.Stdin)
		} else {
			file, err := os.Open(name)
			if err != nil {
				return err
			}
			defer file.Close()
			var r io.Reader = file
			if strings.HasSuffix(name, ".gz") {
				if r, err = gzip.NewReader(file); err != nil {
					return fmt.Errorf("%s: %w", name, err)
				}
			}
			s.r = event.NewReader(r)
		}
		if err := s.advance(); err != nil {
			return err
		}
		sources[i] = s
	}
	numbers := make(map[fileOf]int)
	for {
		first := -1
		for i, s := range sources {
			if s.next != nil && (first < 0 || s.end.Before(sources[first].end)) {
				first = i
			}
		}
		if first < 0 {
			return nil
		}
		e := sources[first].next
		if len(files) > 1 {
			renumber(e, func(file int) int {
				k := fileOf{first, file}
				if file == 0 {
					return 0
				}
				if numbers[k] == 0 {
					numbers[k] = len(numbers) + 1
				}
				return numbers[k]
			})
		}
		if err := f(first, e); err != nil {
			return err
		}
		if err := sources[first].advance(); err != nil {
			return err
		}
	}
}

type fileOf struct{ source, file int }

func renumber(e *event.Event, number func(int) int) {
	e.File = number(e.File)
	for i := range e.Created {
		e.Created[i].File = number(e.Created[i].File)
	}
	for i := range e.Destroyed {
		e.Destroyed[i].File = number(e.Destroyed[i].File)
	}
}

type source struct {
	name     string
	r        *event.Reader
	complain func(error)
	next     *event.Event // nil at the end
	end      time.Time    // when next ended
}

// maxBad bounds consecutive lines that are not events. A file with as many is not a trace.
const maxBad = 10

func (s *source) advance() error {
	s.next = nil
	for range maxBad {
		e, err := s.r.Read()
		var file *os.PathError
		switch {
		case err == io.EOF:
			return nil
		case errors.As(err, &file):
			return err
		case err != nil:
			s.complain(fmt.Errorf("%s: %w", s.name, err))
			continue
		}
		s.next, s.end = e, e.Time.Add(e.Duration)
		return nil
	}
	return fmt.Errorf("%s is not a trace: %d lines in a row are not events", s.name, maxBad)
}
