package diags

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strconv"
	"strings"

	"github.com/goverbs/goverbs/cmd/ibv/internal/cli"
)

// names are names of nodes, by their GUIDs.
type names map[uint64]string

// usualNames is the file of names that infiniband-diags reads by itself.
const usualNames = "/etc/rdma/ib-node-name-map"

// readNames reads a file of names: lines of a GUID and a name in quotes. The first name of a GUID counts.
func readNames(path string) (names, error) {
	b, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	all := make(names)
	for line := range strings.Lines(string(b)) {
		line = strings.TrimSpace(line)
		if line == "" || line[0] == '#' {
			continue
		}
		word := strings.Fields(line)[0]
		guid, err := strconv.ParseUint(word, 0, 64)
		if err != nil {
			return nil, fmt.Errorf("%s: %q begins with no GUID", path, line)
		}
		name := strings.FieldsFunc(strings.TrimSpace(line[len(word):]), func(r rune) bool { return r == '"' || r == '#' })
		if _, ok := all[guid]; !ok && len(name) > 0 {
			all[guid] = name[0]
		}
	}
	return all, nil
}

// of returns a node's name: that of the file, or its description of itself.
func (n names) of(guid uint64, description []byte) []byte {
	if name, ok := n[guid]; ok {
		return []byte(name)
	}
	return description[:min(len(description), 63)]
}

// namesOption is the option for the file of names.
func (o *common) namesOption() cli.Option {
	return cli.Opt(0, "node-name-map", "FILE", "nodes have the names of this file: on each line a GUID and \"a name\"\n(default "+usualNames+")", func(value string) (err error) {
		o.names, err = readNames(value)
		return err
	})
}

// findNames returns the names of the option's file, or of the usual one.
func (o *common) findNames() names {
	if o.names != nil {
		return o.names
	}
	all, err := readNames(usualNames)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		cli.Errorf("%v", err)
	}
	return all
}
