package ratios

import (
	"os"
	"path/filepath"
	"slices"
	"testing"
)

func TestHold(t *testing.T) {
	file := filepath.Join(t.TempDir(), "ratios")
	if err := os.WriteFile(file, []byte("# a comment\n1.000 poll\n2.000 post a list\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	r, err := Read(file)
	if err != nil {
		t.Fatal(err)
	}
	for _, x := range []struct {
		name   string
		golang Figures
		grown  []string
		holds  bool
	}{
		{"the same", Figures{"poll": 100, "post a list": 400}, nil, true},
		{"within the margin", Figures{"poll": 101.9, "post a list": 400}, nil, true},
		{"one has grown", Figures{"poll": 102.1, "post a list": 400}, []string{"poll"}, false},
		{"both have grown", Figures{"poll": 110, "post a list": 410}, []string{"poll", "post a list"}, false},
		{"one has shrunk", Figures{"poll": 50, "post a list": 400}, nil, true},
		{"one is new", Figures{"poll": 100, "close": 1}, nil, false},
	} {
		c := Counts{C: Figures{"poll": 100, "post a list": 200, "close": 1}, Go: x.golang}
		if got := r.Grown(c); !slices.Equal(got, x.grown) {
			t.Errorf("%s: %q have grown, want %q", x.name, got, x.grown)
		}
		if got := r.Hold(c); got != x.holds {
			t.Errorf("%s: holds: %t", x.name, got)
		}
	}
	if r, err := Read(""); r != nil || err != nil {
		t.Errorf("no file: %v, %v", r, err)
	}
	if _, err := Read(file + "2"); err == nil {
		t.Error("a missing file is read")
	}
	if err := os.WriteFile(file, []byte("one poll\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	if _, err := Read(file); err == nil {
		t.Error("a ratio in words is read")
	}
}

func TestLeast(t *testing.T) {
	f := Figures{}
	f.Add("poll", 3)
	f.Add("poll", 2)
	f.Add("poll", 4)
	if f["poll"] != 2 {
		t.Errorf("the least is %v", f["poll"])
	}
}
