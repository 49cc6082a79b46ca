package gvisor

import (
	"os"
	"path/filepath"
	"slices"
	"testing"
)

func TestRefused(t *testing.T) {
	for _, x := range []struct {
		name string
		c    Command
		want string
	}{
		{"a known method", Command{Method: "UVERBS_METHOD_QUERY_PORT", Attrs: []Attr{{"UVERBS_ATTR_QUERY_PORT_PORT_NUM", 1}, {"UVERBS_ATTR_QUERY_PORT_RESP", 100}}}, ""},
		{"mlx5's", Command{Method: "MLX5_IB_METHOD_UAR_OBJ_DESTROY", Attrs: []Attr{{"MLX5_IB_ATTR_UAR_OBJ_DESTROY_HANDLE", 0}}}, ""},
		{"a write command", Command{Method: "UVERBS_METHOD_INVOKE_WRITE", Attrs: []Attr{{"UVERBS_ATTR_WRITE_CMD", 8}}, Write: "IB_USER_VERBS_CMD_ALLOC_PD"}, ""},
		{"an unknown method", Command{Method: "UVERBS_METHOD_SRQ_CREATE"}, "UVERBS_METHOD_SRQ_CREATE"},
		{"an unknown attribute", Command{Method: "UVERBS_METHOD_PD_DESTROY", Attrs: []Attr{{"UVERBS_ATTR_UHW_IN", 8}}}, "UVERBS_ATTR_UHW_IN"},
		{"a handle with a length", Command{Method: "UVERBS_METHOD_PD_DESTROY", Attrs: []Attr{{"UVERBS_ATTR_DESTROY_PD_HANDLE", 4}}}, "UVERBS_ATTR_DESTROY_PD_HANDLE of 4 bytes"},
		{"a value that is too long", Command{Method: "UVERBS_METHOD_REG_MR", Attrs: []Attr{{"UVERBS_ATTR_REG_MR_LENGTH", 9}}}, "UVERBS_ATTR_REG_MR_LENGTH of 9 bytes"},
		{"an unknown write command", Command{Method: "UVERBS_METHOD_INVOKE_WRITE", Write: "IB_USER_VERBS_CMD_RESIZE_CQ"}, "IB_USER_VERBS_CMD_RESIZE_CQ"},
		{"too many attributes", Command{Method: "UVERBS_METHOD_PD_DESTROY", Attrs: make([]Attr, 65)}, "65 attributes"},
		{"the older ABI", Command{Write: "IB_USER_VERBS_CMD_ALLOC_PD"}, "write(2)"},
	} {
		if got := Refused(x.c); got != x.want {
			t.Errorf("%s: %q, want %q", x.name, got, x.want)
		}
	}
}

func TestCompare(t *testing.T) {
	file := filepath.Join(t.TempDir(), "refused")
	if err := os.WriteFile(file, []byte("# a comment\n\nb: write(2)\nc: UVERBS_METHOD_X\n"), 0o666); err != nil {
		t.Fatal(err)
	}
	var r Refusals
	r.Look(Command{Verb: "a", Method: "UVERBS_METHOD_PD_DESTROY"})
	r.Look(Command{Verb: "c", Method: "UVERBS_METHOD_X"})
	r.Look(Command{Verb: "d"})
	more, less, err := r.Compare(file)
	if err != nil || !slices.Equal(more, []string{"d: write(2)"}) || !slices.Equal(less, []string{"b: write(2)"}) || r.Commands() != 3 {
		t.Errorf("of %d commands, %q are too many, %q too few: %v", r.Commands(), more, less, err)
	}
	if _, _, err := r.Compare(file + "x"); err == nil {
		t.Error("no file is equal")
	}
}
