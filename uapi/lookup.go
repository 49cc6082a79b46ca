package uapi

// LookupObject returns an object type of a driver, with the methods and attributes of the core and of
// the driver (mlx5 and efa have some), or nil if the type is unknown. The driver namespace (id &
// UVERBS_ID_NS_MASK != 0) is known for mlx5 only.
func LookupObject(driver RdmaDriverId, id uint16) *Object {
	if id&UVERBS_ID_NS_MASK == 0 {
		var own []*Object
		switch driver {
		case RDMA_DRIVER_MLX5:
			own = mlx5CoreObjects[:]
		case RDMA_DRIVER_EFA:
			own = efaCoreObjects[:]
		}
		if int(id) < len(own) && own[id] != nil {
			return own[id]
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

// LookupMethod returns a method of a driver, or nil if it is unknown.
func LookupMethod(driver RdmaDriverId, object, method uint16) *Method {
	if o := LookupObject(driver, object); o != nil {
		return o.Method(method)
	}
	return nil
}

// VerbName returns libibverbs' name of a core method, without "ibv_": "create_qp". It is ""
// if the method is unknown.
func VerbName(object, method uint16) string {
	if m := LookupMethod(RDMA_DRIVER_UNKNOWN, object, method); m != nil {
		return m.Verb
	}
	return ""
}

// LookupWriteCommand returns the command with this id, the value of UVERBS_ATTR_WRITE_CMD,
// or nil if the id is unknown.
func LookupWriteCommand(id uint32) *WriteCommand {
	for i := range writeCommands {
		if writeCommands[i].ID == id {
			return &writeCommands[i]
		}
	}
	return nil
}

// A driverStruct has the structs that a driver exchanges in one verb.
type driverStruct struct {
	driver  RdmaDriverId
	verb    string
	in, out *Struct
}

// RSSData returns the struct of a driver's UVERBS_ATTR_UHW_IN for a create_qp with an
// indirection table, or nil if there is none.
func RSSData(driver RdmaDriverId) *Struct {
	if driver == RDMA_DRIVER_MLX5 {
		return StructMlx5IbCreateQpRss
	}
	return nil
}

// DriverData returns the structs of a driver's UVERBS_ATTR_UHW_IN and UVERBS_ATTR_UHW_OUT for a
// verb ([Method].Verb or [WriteCommand].Name). A struct is nil if the driver has none, or if it is
// unknown. Older kernels have shorter versions of the structs, and newer kernels longer ones.
func DriverData(driver RdmaDriverId, verb string) (in, out *Struct) {
	for i := range driverStructs {
		if d := &driverStructs[i]; d.driver == driver && d.verb == verb {
			return d.in, d.out
		}
	}
	return nil, nil
}
