package doctor

// A Kind is a kind of finding.
type Kind struct {
	ID      string
	Note    bool   // it leaves the host healthy
	Title   string // what is wrong
	LeadsTo string // the consequence
	Mend    string // how to mend it
}

// Kinds are all kinds of findings, by subject.
var Kinds []*Kind

func kind(k Kind) *Kind {
	Kinds = append(Kinds, &k)
	return &k
}

// Devices, modules and nodes.
var (
	sysMissing = kind(Kind{ID: "sys-missing", Title: "/sys isn't mounted",
		LeadsTo: "No program finds a device.", Mend: "mount it, or pass it into the container"})
	noDevice = kind(Kind{ID: "no-device", Title: "the kernel has no RDMA device",
		LeadsTo: "Programs fail with \"no devices found\".", Mend: "ibv link add, for a software device"})
	deviceUnknown = kind(Kind{ID: "device-unknown", Title: "there is no device of the given name",
		LeadsTo: "Programs that are told this name fail.", Mend: "use one of the names that exist"})
	driverMissing = kind(Kind{ID: "driver-missing", Title: "an RDMA card has no driver",
		LeadsTo: "The kernel has no device for the card.", Mend: "modprobe the driver"})
	cardUnbound = kind(Kind{ID: "card-unbound", Title: "the driver is loaded, but doesn't drive the card",
		LeadsTo: "The kernel has no device for the card.", Mend: "have the driver probe the card again"})
	halfMissing = kind(Kind{ID: "rdma-driver-missing", Title: "the RDMA half of a card's driver isn't loaded",
		LeadsTo: "The card works as a network interface only.", Mend: "modprobe the RDMA half"})
	halfSpare = kind(Kind{ID: "rdma-driver-spare", Note: true, Title: "the RDMA half of a card's driver isn't loaded, but there are other RDMA devices",
		LeadsTo: "This card works as a network interface only.", Mend: "modprobe the RDMA half, if the card is to be used"})
	halfUnbound = kind(Kind{ID: "rdma-driver-unbound", Title: "the RDMA half of the driver is loaded, but doesn't drive the card",
		LeadsTo: "The card works as a network interface only.", Mend: "load the module again"})
	uverbsMissing = kind(Kind{ID: "uverbs-missing", Title: "the module ib_uverbs isn't loaded",
		LeadsTo: "Programs see no devices, although the kernel has some.", Mend: "modprobe ib_uverbs"})
	nodeMissing = kind(Kind{ID: "node-missing", Title: "a device node in /dev/infiniband is missing",
		LeadsTo: "Programs can't open the device, or can't connect by address.", Mend: "mknod, or --device for a container"})
	nodeNotPassed = kind(Kind{ID: "node-not-passed", Note: true, Title: "a container has no node of this device, but of another, or none of the connection manager",
		LeadsTo: "Programs can't open the device, or can't connect by address.", Mend: "--device for the container, if it is to be used"})
	nodeStale = kind(Kind{ID: "node-stale", Title: "a device node has another device's number",
		LeadsTo: "Opening the device fails, or opens another one.", Mend: "make the node anew"})
	nodePermission = kind(Kind{ID: "node-permission", Title: "the user may not open a device node",
		LeadsTo: "Opening the device fails with EACCES.", Mend: "chmod"})
	deviceCgroup = kind(Kind{ID: "device-cgroup", Title: "the device cgroup forbids a device node",
		LeadsTo: "Opening the device fails with EPERM.", Mend: "--device for the container"})
	openFailed = kind(Kind{ID: "open-failed", Title: "a device can't be opened",
		LeadsTo: "No program can use it.", Mend: "the kernel's log may say more"})
	kernelOld = kind(Kind{ID: "kernel-old", Title: "the kernel is older than 5.10",
		LeadsTo: "goverbs can't open the device.", Mend: "a newer kernel"})
	abiVersion = kind(Kind{ID: "abi-version", Title: "goverbs doesn't know the driver's ABI version",
		LeadsTo: "goverbs can't open the device.", Mend: "another version of goverbs or the driver"})
	noProvider = kind(Kind{ID: "no-provider", Title: "goverbs has no provider for any device",
		LeadsTo: "Programs on goverbs can't open the device.", Mend: "a provider from another module"})
	noProviderHere = kind(Kind{ID: "no-provider-here", Note: true, Title: "goverbs has no provider for this device, but for another",
		LeadsTo: "Programs on goverbs can't open this device.", Mend: "a provider from another module"})
	deviceRenamed = kind(Kind{ID: "device-renamed", Note: true, Title: "udev has renamed the device",
		LeadsTo: "Configurations with the kernel's name don't find it.", Mend: "use the new name"})
	cmModule = kind(Kind{ID: "rdma-cm-missing", Title: "the module rdma_ucm isn't loaded",
		LeadsTo: "Connections by address fail: rdmacm, librdmacm.", Mend: "modprobe rdma_ucm"})
)

// Limits and namespaces.
var (
	memlockLow = kind(Kind{ID: "memlock-low", Title: "the limit of locked memory is below 64 MiB",
		LeadsTo: "Registering memory fails with ENOMEM.", Mend: "ulimit -l, or prlimit as root"})
	ipcLock = kind(Kind{ID: "ipc-lock", Title: "root lacks CAP_IPC_LOCK, and the limit of locked memory is below 64 MiB",
		LeadsTo: "Registering memory fails with ENOMEM.", Mend: "--ulimit memlock=-1 for the container"})
	rdmaCgroup = kind(Kind{ID: "rdma-cgroup", Title: "the rdma cgroup leaves too few objects",
		LeadsTo: "Opening the device, or creating objects, fails with EAGAIN.", Mend: "raise rdma.max"})
	netnsExclusive = kind(Kind{ID: "netns-exclusive", Title: "RDMA devices are in other network namespaces",
		LeadsTo: "Programs in this namespace find no device.", Mend: "ibv system set netns shared"})
	netDevElsewhere = kind(Kind{ID: "netdev-elsewhere", Title: "a port's network interface is in another network namespace",
		LeadsTo: "Connecting by address fails, and programs see GIDs of addresses that they don't have.", Mend: "--network host, or move the interface"})
)

// Ports and links.
var (
	netDevDown = kind(Kind{ID: "netdev-down", Title: "an Ethernet port is down, because its network interface is",
		LeadsTo: "Queue pairs can't reach RTR, or nothing arrives.", Mend: "ip link set dev … up"})
	noCarrier = kind(Kind{ID: "no-carrier", Title: "an Ethernet port has no link",
		LeadsTo: "Nothing can be sent.", Mend: "check the cable and the switch"})
	portDown = kind(Kind{ID: "port-down", Title: "a port is down for an unknown reason",
		LeadsTo: "Nothing can be sent.", Mend: "take the interface down and up; the kernel's log"})
	portDisabled = kind(Kind{ID: "port-disabled", Title: "an InfiniBand port was disabled",
		LeadsTo: "Nothing can be sent.", Mend: "ibportstate … enable"})
	noLink = kind(Kind{ID: "no-link", Title: "an InfiniBand port finds no link",
		LeadsTo: "Nothing can be sent.", Mend: "check the cable and the other end"})
	linkTraining = kind(Kind{ID: "link-training", Title: "an InfiniBand link's training doesn't end",
		LeadsTo: "Nothing can be sent.", Mend: "check the cable and the other end"})
	linkRecovery = kind(Kind{ID: "link-recovery", Title: "an InfiniBand link recovers from errors",
		LeadsTo: "Nothing can be sent meanwhile.", Mend: "check the cable and the other end"})
	noSubnetManager = kind(Kind{ID: "no-subnet-manager", Title: "no subnet manager has configured an InfiniBand port",
		LeadsTo: "The port has no LID, and nothing can be sent.", Mend: "systemctl start opensm, on one host of the subnet"})
	portArmed = kind(Kind{ID: "port-armed", Title: "the subnet manager hasn't activated an InfiniBand port",
		LeadsTo: "Nothing can be sent.", Mend: "the subnet manager's log"})
	portSpare = kind(Kind{ID: "port-spare", Note: true, Title: "a port without an address is down, while another is active",
		LeadsTo: "Only the other port can be used.", Mend: "nothing, unless it is to be used"})
	linkNarrow = kind(Kind{ID: "link-narrow", Title: "an InfiniBand link uses one lane only",
		LeadsTo: "A quarter of the bandwidth.", Mend: "check the cable"})
	linkSlowIB = kind(Kind{ID: "link-slow", Title: "an InfiniBand link is slower than the slowest generation of its card",
		LeadsTo: "A fraction of the bandwidth.", Mend: "check the cable and the other end"})
	linkSlow = kind(Kind{ID: "ethernet-slow", Title: "an Ethernet link is slower than what both ends offer",
		LeadsTo: "A fraction of the bandwidth.", Mend: "ethtool -s … speed"})
	mtuLow = kind(Kind{ID: "mtu-low", Title: "an Ethernet port's active MTU is below 1024, because of its interface's",
		LeadsTo: "Many small packets; peers that expect 1024 can't connect.", Mend: "ip link set dev … mtu 1500"})
	mtuBehind = kind(Kind{ID: "mtu-behind", Title: "an Ethernet port's active MTU is below what its interface's allows",
		LeadsTo: "Many small packets; peers with a larger MTU can't connect.", Mend: "take the interface down and up"})
	mtuSubnet = kind(Kind{ID: "mtu-subnet", Note: true, Title: "an InfiniBand port's active MTU is below 2048",
		LeadsTo: "Less bandwidth.", Mend: "the subnet manager's configuration"})
	rxeBelow = kind(Kind{ID: "rxe-below", Title: "a software device is on a port of a bond or bridge",
		LeadsTo: "The bond or bridge has the addresses, and the device doesn't get what arrives for them.", Mend: "make the device on the bond or bridge"})
	bondMode = kind(Kind{ID: "bond-mode", Note: true, Title: "the bond's mode isn't one for RDMA over both ports",
		LeadsTo: "RDMA uses one port only, and doesn't survive its failure.", Mend: "another mode"})
	bondSplit = kind(Kind{ID: "bond-split", Note: true, Title: "two ports of one card are bonded, but have two RDMA devices",
		LeadsTo: "RDMA doesn't survive the failure of a port.", Mend: "load mlx5_ib after the bond is made"})
)

// Addresses.
var (
	addressMissing = kind(Kind{ID: "address-missing", Title: "an Ethernet port has no GID to be reached by, because its interface has no IP address",
		LeadsTo: "Peers can't be reached, except by link-local GIDs, and connecting by address fails.", Mend: "ip address add"})
	addressSpare = kind(Kind{ID: "address-spare", Note: true, Title: "an Ethernet port has no GID to be reached by, but another port has",
		LeadsTo: "Only the other port can be used.", Mend: "ip address add, if it is to be used"})
	gidMissing = kind(Kind{ID: "gid-missing", Title: "the interface's addresses are not in the GID table",
		LeadsTo: "Connecting by this address fails.", Mend: "delete and add the address"})
	gidOnlyV1 = kind(Kind{ID: "gid-v1-only", Title: "an Ethernet port has GIDs for RoCE v1 only",
		LeadsTo: "Packets don't pass routers, and peers with RoCE v2 can't be reached.", Mend: "enable RoCE v2"})
	gidChoice = kind(Kind{ID: "gid-choice", Note: true, Title: "NCCL, UCX and perftest choose different GIDs",
		LeadsTo: "One program works where another doesn't.", Mend: "tell the programs the index"})
	pkeyNone = kind(Kind{ID: "pkey-none", Title: "an InfiniBand port is in no partition",
		LeadsTo: "Queue pairs can't be set up.", Mend: "the subnet manager's partitions"})
	pkeyLimited = kind(Kind{ID: "pkey-limited", Note: true, Title: "an InfiniBand port is only a limited member of its partitions",
		LeadsTo: "It can't talk to other limited members.", Mend: "the subnet manager's partitions"})
	cmRoCEv1 = kind(Kind{ID: "rdma-cm-roce-v1", Title: "the connection manager is configured for RoCE v1",
		LeadsTo: "Connections by address don't pass routers, and fail with peers on RoCE v2.", Mend: "write to default_roce_mode"})
)

// The card, the host and the kernel.
var (
	pcieDegraded = kind(Kind{ID: "pcie-degraded", Title: "a card's PCIe link is slower or narrower than card and slot can",
		LeadsTo: "The link to the network can't be filled.", Mend: "put the card into its slot anew"})
	pcieSlot = kind(Kind{ID: "pcie-slot", Note: true, Title: "a card is in a slot that is slower than the card",
		LeadsTo: "The link to the network may not be filled.", Mend: "another slot"})
	maxReadReq = kind(Kind{ID: "max-read-request", Note: true, Title: "a card reads memory in small requests",
		LeadsTo: "Less bandwidth when sending.", Mend: "setpci"})
	relaxedOrdering = kind(Kind{ID: "relaxed-ordering", Note: true, Title: "a card doesn't use PCIe's relaxed ordering",
		LeadsTo: "Less bandwidth on some processors.", Mend: "setpci"})
	numaRemote = kind(Kind{ID: "numa-remote", Note: true, Title: "this process may only run far from the card",
		LeadsTo: "Higher latency, less bandwidth.", Mend: "taskset"})
	iommuTranslates = kind(Kind{ID: "iommu", Note: true, Title: "the IOMMU translates a card's accesses to memory",
		LeadsTo: "Registering memory takes longer, and bandwidth may be less.", Mend: "iommu=pt"})
	pcieACS = kind(Kind{ID: "pcie-acs", Note: true, Title: "ACS keeps a PCIe switch from passing data between a card and a GPU or NVMe disk directly",
		LeadsTo: "GPUDirect and peer-to-peer transfers are slow, or fail.", Mend: "setpci"})
	gpuMemory = kind(Kind{ID: "gpu-memory", Note: true, Title: "RDMA devices can't access the memory of the GPUs",
		LeadsTo: "GPUDirect RDMA doesn't work.", Mend: "modprobe nvidia-peermem"})
	hugePagesUsed = kind(Kind{ID: "huge-pages", Note: true, Title: "all reserved huge pages are in use",
		LeadsTo: "Allocating huge pages fails.", Mend: "sysctl vm.nr_hugepages"})
	firmwareOld = kind(Kind{ID: "firmware-old", Note: true, Title: "a ConnectX has firmware from before 2023",
		LeadsTo: "Faults that have been fixed since.", Mend: "mlxup"})
	rxeTwoDevices = kind(Kind{ID: "rxe-two-devices", Note: true, Title: "a host with several rxe devices drops what comes from its own addresses",
		LeadsTo: "Queue pairs of one device can't reach those of another.", Mend: "sysctl accept_local and arp_ignore"})
	rxeODP = kind(Kind{ID: "rxe-odp", Note: true, Title: "rxe of Linux 7.2 and 7.3 reads and writes the wrong bytes of memory that is paged on demand",
		LeadsTo: "Wrong data, without an error.", Mend: "no on-demand paging"})
)

// Events during the examination.
var (
	retransmissions = kind(Kind{ID: "retransmissions", Title: "packets are sent again",
		LeadsTo: "Latency of milliseconds, and less bandwidth.", Mend: "find out where packets are lost: ibv doctor --peer HOST"})
	outOfSequence = kind(Kind{ID: "out-of-sequence", Title: "packets arrive out of order, or not at all",
		LeadsTo: "The peer sends again.", Mend: "check the switches for drops, and flow control (PFC) or congestion control (ECN)"})
	notReady = kind(Kind{ID: "receiver-not-ready", Title: "messages arrive before receives are posted",
		LeadsTo: "The peer waits and sends again, or gives up.", Mend: "post more receives, earlier"})
	symbolErrors = kind(Kind{ID: "symbol-errors", Title: "the link damages packets",
		LeadsTo: "Packets are sent again; the link may go down.", Mend: "clean or replace the cable and its transceivers"})
	linkFlaps = kind(Kind{ID: "link-flaps", Title: "the link went down",
		LeadsTo: "Connections break.", Mend: "clean or replace the cable and its transceivers"})
	discards = kind(Kind{ID: "discards", Title: "the port drops packets",
		LeadsTo: "Packets are sent again.", Mend: "set up flow control (PFC) or congestion control (ECN)"})
	pause = kind(Kind{ID: "pause", Note: true, Title: "the port sends or receives pause frames",
		LeadsTo: "Less bandwidth: a receiver is slower than its senders.", Mend: "look for the slow receiver"})
	congestion = kind(Kind{ID: "congestion", Note: true, Title: "congestion control slows senders down",
		LeadsTo: "Less bandwidth.", Mend: "look for the congested link"})
)

// Two ends: doctor --peer.
var (
	peerLink = kind(Kind{ID: "peer-link-layer", Title: "one end is on InfiniBand, the other on Ethernet",
		LeadsTo: "They can't reach each other.", Mend: "examine ports of the same network"})
	peerGIDType = kind(Kind{ID: "peer-gid-type", Title: "the ends use different versions of RoCE",
		LeadsTo: "They don't understand each other's packets.", Mend: "GIDs of the same type: -g"})
	peerFamily = kind(Kind{ID: "peer-family", Title: "one end's GID is an IPv4 address, the other's IPv6",
		LeadsTo: "They can't reach each other.", Mend: "GIDs of the same family: -g"})
	peerVLAN = kind(Kind{ID: "peer-vlan", Title: "the GIDs are in different VLANs",
		LeadsTo: "They can't reach each other, unless a router joins the VLANs.", Mend: "GIDs of the same VLAN: -g"})
	peerPKey = kind(Kind{ID: "peer-pkey", Title: "the ends have no partition in common, or are both limited members",
		LeadsTo: "Packets are dropped.", Mend: "the subnet manager's partitions"})
	peerMTU = kind(Kind{ID: "peer-mtu", Title: "the ends have different active MTUs",
		LeadsTo: "Programs that don't agree on the smaller one lose their larger packets.", Mend: "the same MTU on both interfaces"})
	peerSubnet = kind(Kind{ID: "peer-subnet", Note: true, Title: "the ends are in different InfiniBand subnets",
		LeadsTo: "Only programs that use global addresses work, and there must be a router.", Mend: "nothing, if that is intended"})
	peerTrafficClass = kind(Kind{ID: "peer-traffic-class", Note: true, Title: "the ends use different traffic classes",
		LeadsTo: "The switches may treat one direction as lossless, and drop packets of the other.", Mend: "the same default_roce_tos or traffic_class"})
	peerGID = kind(Kind{ID: "peer-wrong-gid", Title: "the GIDs don't reach each other, but others do",
		LeadsTo: "Connecting fails, or queue pairs time out.", Mend: "use the GIDs that do: -g"})
	peerRoute = kind(Kind{ID: "peer-no-route", Title: "one end has no route to the other's GID",
		LeadsTo: "Connecting fails, when the queue pair or address handle is set up.", Mend: "a route, or another GID"})
	peerUnreachable = kind(Kind{ID: "peer-unreachable", Title: "nothing arrives in either direction",
		LeadsTo: "Queue pairs time out.", Mend: "check addresses, VLANs and the switches between the ports"})
	peerFirewall = kind(Kind{ID: "peer-firewall", Title: "RDMA doesn't arrive, although other UDP packets do: a firewall drops UDP port 4791",
		LeadsTo: "Queue pairs time out.", Mend: "allow UDP port 4791"})
	peerOneWay = kind(Kind{ID: "peer-one-way", Title: "nothing arrives in one direction",
		LeadsTo: "Queue pairs time out, because acknowledgements are lost.", Mend: "check the routes and the filters of that direction"})
	peerBlackHole = kind(Kind{ID: "peer-black-hole", Title: "small packets arrive, packets of the full MTU don't",
		LeadsTo: "Small messages work, large ones time out.", Mend: "raise the MTU of the switches, or lower that of the interfaces"})
	peerLoss = kind(Kind{ID: "peer-loss", Title: "some packets are lost",
		LeadsTo: "Latency of milliseconds, and less bandwidth.", Mend: "check cables, and flow control (PFC) or congestion control (ECN)"})
	peerRC = kind(Kind{ID: "peer-rc", Title: "datagrams arrive, but a reliable connection fails",
		LeadsTo: "Most programs don't work.", Mend: "the status of the completion says more"})
)
