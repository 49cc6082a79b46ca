package firmware

import (
	"bytes"
	"testing"

	"github.com/goverbs/goverbs/rig/connectx/internal/ifc"
)

// TestResourceDump: the driver finds the kinds of dumps in the menu, and gets the answer of the
// object's query.
func TestResourceDump(t *testing.T) {
	d := started(t)
	eqn, _ := d.createEQ(1)
	cqn := d.createCQ(eqn)
	pd := d.do(0x800, nil).Get("pd")
	index := d.do(0x200, func(in ifc.View) {
		in.Set("memory_key_mkey_entry.pd", pd)
		in.Set("memory_key_mkey_entry.length64", 1)
		in.Set("memory_key_mkey_entry.qpn", 0xffffff)
		in.Set("memory_key_mkey_entry.lw", 1)
	}).Get("mkey_index")
	page := d.pages(1)
	access := func(kind, number, size uint64) (dump []byte, status Status) {
		r := ifc.Make("resource_dump")
		out, status := d.try(0x805, r.Size(), r.Size(), func(in ifc.View) {
			in.Set("register_id", 0xc000)
			r.Data = in.Bytes("register_data")
			for field, value := range map[string]uint64{"segment_type": kind, "index1": number, "num_of_obj1": 1, "size": size, "mkey": index << 8, "address": page} {
				r.Set(field, value)
			}
		})
		if status != OK {
			return nil, status
		}
		r.Data = out.Bytes("register_data")
		if r.Get("seq_num") != 1 || r.Flag("more_dump") {
			t.Errorf("part %d, more %t", r.Get("seq_num"), r.Flag("more_dump"))
		}
		return bytes.Clone(d.ram.Bytes(page, int(r.Get("size")))), OK
	}
	segments := func(dump []byte) (kinds []uint64, bodies [][]byte) {
		for len(dump) > 0 {
			h := ifc.On("resource_dump_segment_header", dump)
			n := 4 * int(h.Get("length_dw"))
			kinds, bodies = append(kinds, h.Get("segment_type")), append(bodies, dump[:n])
			dump = dump[n:]
		}
		return kinds, bodies
	}
	dump, status := access(segmentMenu, 0, 4096)
	kinds, bodies := segments(dump)
	if status != OK || len(kinds) != 4 || kinds[0] != segmentInfo || kinds[1] != segmentCommand || kinds[2] != segmentMenu || kinds[3] != segmentTerminate {
		t.Fatalf("status %#x, segments %#x", status, kinds)
	}
	named := make(map[string]uint64)
	record := ifc.Of("resource_dump_menu_record")
	for rest := bodies[2][8:]; len(rest) > 0; rest = rest[record.Size():] {
		v := ifc.View{Layout: record, Data: rest}
		named[string(bytes.TrimRight(v.Bytes("segment_name"), "\x00"))] = v.Get("segment_type")
	}
	dump, status = access(named["PRM_QUERY_CQ"], uint64(cqn), 4096)
	kinds, bodies = segments(dump)
	want := d.do(0x402, set("cqn", cqn))
	if status != OK || len(kinds) != 4 || kinds[2] != named["PRM_QUERY_CQ"] || !bytes.Equal(bodies[2][16:], want.Data) {
		t.Errorf("status %#x, segments %#x, % x", status, kinds, bodies)
	}
	dump, status = access(named["PRM_QUERY_MKEY"], index, 4096)
	if _, bodies = segments(dump); status != OK || !bytes.Equal(bodies[2][16:], d.do(0x201, set("mkey_index", int(index))).Data) {
		t.Errorf("status %#x, % x", status, bodies)
	}
	dump, status = access(named["PRM_QUERY_QP"], 0xabcde, 4096)
	if kinds, _ = segments(dump); status != OK || len(kinds) != 4 || kinds[2] != segmentError {
		t.Errorf("a QP that doesn't exist: status %#x, segments %#x", status, kinds)
	}
	for _, wrong := range []struct{ kind, size uint64 }{{0x1234, 4096}, {segmentMenu, 64}} {
		if _, status := access(wrong.kind, 0, wrong.size); status != BadParam {
			t.Errorf("%+v has status %#x", wrong, status)
		}
	}
}
