package export

import (
	"bytes"
	"slices"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"
)

// A page collects the samples of metrics, each metric's together.
type page struct {
	prefix   string
	families map[string]*family
	order    []*family
	failed   []error // what is left out
}

// A family is a metric.
type family struct {
	name, kind, help string
	samples          []sample
}

type sample struct {
	labels []string // names and values
	value  float64
}

// add adds a sample. labels has names and values.
func (p *page) add(name, kind, help string, value float64, labels ...string) {
	f := p.families[name]
	if f == nil {
		f = &family{name: p.prefix + "_" + name, kind: kind, help: help}
		p.families[name] = f
		p.order = append(p.order, f)
	}
	f.samples = append(f.samples, sample{labels, value})
}

const (
	counter = "counter"
	gauge   = "gauge"
)

// text writes all metrics, in OpenMetrics's format or Prometheus's.
func (p *page) text(open bool) []byte {
	var b bytes.Buffer
	slices.SortFunc(p.order, func(x, y *family) int { return strings.Compare(x.name, y.name) })
	for _, f := range p.order {
		name := f.name
		if open && f.kind == counter {
			name = strings.TrimSuffix(name, "_total")
		}
		b.WriteString("# HELP " + name + " " + f.help + "\n# TYPE " + name + " " + f.kind + "\n")
		for _, s := range f.samples {
			b.WriteString(f.name)
			for i := 0; i+1 < len(s.labels); i += 2 {
				b.WriteByte("{,"[min(i, 1)])
				b.WriteString(s.labels[i] + `="` + escape.Replace(label(s.labels[i+1])) + `"`)
			}
			if len(s.labels) > 0 {
				b.WriteByte('}')
			}
			b.WriteByte(' ')
			b.Write(strconv.AppendFloat(nil, s.value, 'g', -1, 64))
			b.WriteByte('\n')
		}
	}
	if open {
		b.WriteString("# EOF\n")
	}
	return b.Bytes()
}

// escape escapes a label's value. Unlike Go, the formats know only these escapes.
var escape = strings.NewReplacer(`\`, `\\`, `"`, `\"`, "\n", `\n`)

// label makes any text a label's value: valid UTF-8, not long, and without characters that control a terminal.
func label(s string) string {
	const most = 256
	s = strings.Map(func(r rune) rune {
		if r == utf8.RuneError || r != '\n' && !unicode.IsPrint(r) {
			return '?'
		}
		return r
	}, s)
	if len(s) > most {
		s = strings.ToValidUTF8(s[:most], "")
	}
	return s
}
