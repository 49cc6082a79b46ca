package firmware

import (
	"encoding/binary"
	"testing"

	"github.com/goverbs/goverbs/rig/connectx/internal/cq"
	"github.com/goverbs/goverbs/rig/connectx/internal/ifc"
)

// A CQ whose entries and doorbell record are in memory that user space registered: 3
// pages, from offset 0x100 in the first one.
func TestUserMemory(t *testing.T) {
	d := started(t)
	eqn, _ := d.createEQ(1)
	uar := d.do(0x802, nil).Get("uar")
	pages := []uint64{d.pages(1), d.pages(1), d.pages(1)}
	pages[1], pages[2] = pages[2], pages[1]
	out := d.doWith(0xa08, 8*len(pages), 0, func(in ifc.View) {
		in.Set("umem.page_offset", 0x100)
		in.Set("umem.num_of_mtt", uint64(len(pages)))
		for i, at := range pages {
			binary.BigEndian.PutUint64(in.Data[in.Size()+8*i:], at|3)
		}
	})
	umem := uint32(out.Get("umem_id"))

	create := func(buffer, record uint64) func(in ifc.View) {
		return func(in ifc.View) {
			in.Set("cq_context.log_cq_size", 6)
			in.Set("cq_context.uar_page", uar)
			in.Set("cq_context.c_eqn_or_apu_element", uint64(eqn))
			in.Set("cq_context.dbr_addr", record)
			in.Set("cq_umem_valid", 1)
			in.Set("cq_context.dbr_umem_valid", 1)
			// struct mlx5_ifc_create_cq_in_bits: cq_umem_offset, cq_umem_id
			binary.BigEndian.PutUint64(in.Data[80:], buffer)
			binary.BigEndian.PutUint32(in.Data[88:], umem)
			binary.BigEndian.PutUint32(in.Sub("cq_context").Data[4:], umem)
		}
	}
	const size = 3*PageSize - 0x100
	cqn := d.do(0x400, create(0xf00, size-8)).Get("cqn")
	d.refused(ResBusy, 0xa0a, set("umem_id", int(umem)))
	d.refused(BadParam, 0x400, create(size-63*64, 0))
	d.refused(BadParam, 0x400, create(0, size-7))
	umem++
	d.refused(BadRes, 0x400, create(0, 0))
	umem--

	d.h.cqs.items[uint32(cqn)].Post(&cq.Completion{WQECounter: 0x1234}, 0)
	if e := d.ram.Bytes(pages[1], 64); e[60] != 0x12 || e[61] != 0x34 {
		t.Errorf("the entry is not where the second page begins: % x", e)
	}
	binary.BigEndian.PutUint32(d.ram.Bytes(pages[2]+PageSize-8, 4), 1)
	for range 64 { // one more than the queue has room for
		d.h.cqs.items[uint32(cqn)].Post(&cq.Completion{}, 0)
	}
	if s := d.do(0x402, set("cqn", int(cqn))).Get("cq_context.status"); s != 0 {
		t.Errorf("the consumer index was not found: status %d", s)
	}
	d.do(0x401, set("cqn", int(cqn)))
	d.do(0xa0a, set("umem_id", int(umem)))
	d.refused(BadRes, 0xa0a, set("umem_id", int(umem)))
	d.refused(BadInLen, 0xa08, set("umem.num_of_mtt", 1))
	d.refused(BadParam, 0xa08, nil)
}
