package uapi

// LookupObject returns a kind of object as the driver has it: with the core's
// methods and attributes, and the driver's. It is nil if the kind is not known; the
// driver namespace (id & UVERBS_ID_NS_MASK != 0) is known of mlx5.
func LookupObject(driver RdmaDriverId, id uint16) *Object {
	if id&UVERBS_ID_NS_MASK == 0 {
		if driver == RDMA_DRIVER_MLX5 && int(id) < len(mlx5CoreObjects) && mlx5CoreObjects[id] != nil {
			return mlx5CoreObjects[id]
		}
		if int(id) < len(coreObjects) {
			return coreObjects[id]
		}
		return nil
	}
	id -= UVERBS_ID_DRIVER_NS
	if driver == RDMA_DRIVER_MLX5 && int(id) < len(mlx5Objects) {
		return mlx5Objects[id]
	}
	return nil
}

// LookupMethod returns a method as the driver has it, nil if it is not known.
func LookupMethod(driver RdmaDriverId, object, method uint16) *Method {
	if o := LookupObject(driver, object); o != nil {
		return o.Method(method)
	}
	return nil
}

// VerbName returns libibverbs' name, without "ibv_", for one of the core's methods:
// "create_qp". It is "" if the method is not known.
func VerbName(object, method uint16) string {
	if m := LookupMethod(RDMA_DRIVER_UNKNOWN, object, method); m != nil {
		return m.Verb
	}
	return ""
}

// LookupWriteCommand returns the command with the id that UVERBS_ATTR_WRITE_CMD has, nil if
// it is not known.
func LookupWriteCommand(id uint32) *WriteCommand {
	for i := range writeCommands {
		if writeCommands[i].ID == id {
			return &writeCommands[i]
		}
	}
	return nil
}

// A driverStruct says which structs a driver exchanges in one verb.
type driverStruct struct {
	driver  RdmaDriverId
	verb    string
	in, out *Struct
}

// DriverData returns the structs that a driver takes in UVERBS_ATTR_UHW_IN and gives in
// UVERBS_ATTR_UHW_OUT for a verb ([Method].Verb or [WriteCommand].Name). They are
// nil where there is none, or where it is not known. Drivers accept and give
// shorter and longer ones, as older and newer kernels have them.
func DriverData(driver RdmaDriverId, verb string) (in, out *Struct) {
	for i := range driverStructs {
		if d := &driverStructs[i]; d.driver == driver && d.verb == verb {
			return d.in, d.out
		}
	}
	return nil, nil
}
