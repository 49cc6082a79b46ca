package uapi_test

import (
	"fmt"

	"github.com/goverbs/goverbs/uapi"
)

// The program prints the attributes of a method, for one driver.
func ExampleLookupMethod() {
	m := uapi.LookupMethod(uapi.RDMA_DRIVER_RXE, uapi.UVERBS_OBJECT_SRQ, uapi.UVERBS_METHOD_SRQ_DESTROY)
	fmt.Println(m.Verb, m.CName)
	for _, a := range m.Attrs {
		fmt.Printf("%#x %s: %v, mandatory %v\n", a.ID, a.Name, a.Kind, a.Mandatory)
		if a.Type != nil && a.Type.Kind == uapi.TypeStruct {
			for _, f := range a.Type.Struct.Fields {
				fmt.Printf("    %s at %d, %d bytes\n", f.CName, f.Offset, f.Size)
			}
		}
	}
	// Output:
	// destroy_srq UVERBS_METHOD_SRQ_DESTROY
	// 0x0 HANDLE: IDR, mandatory true
	// 0x1 RESP: PTR_OUT, mandatory true
	//     events_reported at 0, 4 bytes
}

// The names of values are those of the kernel, or short.
func ExampleEnum() {
	access := uapi.IB_UVERBS_ACCESS_LOCAL_WRITE | uapi.IB_UVERBS_ACCESS_REMOTE_WRITE
	fmt.Println(access)
	fmt.Println(uapi.EnumIbUverbsAccessFlags.Short(uint64(access)))
	// Output:
	// IB_UVERBS_ACCESS_LOCAL_WRITE|IB_UVERBS_ACCESS_REMOTE_WRITE
	// LOCAL_WRITE|REMOTE_WRITE
}
