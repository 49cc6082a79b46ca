package why

// A Kind is a kind of finding.
type Kind struct {
	ID    string
	Title string // what is wrong
	Mend  string // what to look at
}

// Kinds are all kinds of findings.
var Kinds []*Kind

func kind(id, title, mend string) *Kind {
	k := &Kind{id, title, mend}
	Kinds = append(Kinds, k)
	return k
}

var (
	deviceFatal = kind("device-fatal", "the device doesn't answer the driver",
		"dmesg; the driver resets the device, and programs lose their objects")
	portDown = kind("port-down", "the port of connected queue pairs isn't active",
		"ibv doctor")
	inError = kind("in-error", "a queue pair is in the error state, and the program hasn't noticed or still keeps it",
		"the first completion with an error in the program has the cause")
	stopped = kind("stopped", "the program was stopped by a signal or a debugger",
		"kill -CONT")
	notReady = kind("peer-not-ready", "the peer has no receive posted",
		"the peer's program: ibv why there, or --peer from here")
	noReceive = kind("no-receive", "messages arrive, and this side has no receive posted",
		"this program posts no receives: it waits for something else, or doesn't poll")
	noAck = kind("no-ack", "the peer doesn't acknowledge: it is gone or unreachable",
		"ibv doctor --peer HOST")
	gidGone = kind("gid-gone", "packets get no answer, and the address that they are sent from was removed",
		"the program must connect again; ip address on the interface")
	gidType = kind("gid-type", "packets get no answer, and are sent as RoCE v1, which no router and no peer with RoCE v2 takes",
		"the program must choose a GID of the peer's type: ibv info -v lists them")
	mtuLarge = kind("mtu-large", "packets get no answer, and are longer than the port's MTU",
		"a larger MTU on the interface and all switches, or a smaller one in the program")
	pkeyGone = kind("pkey-gone", "packets get no answer, and the partition that they are sent in was removed from the port",
		"the subnet manager's partitions")
	paused = kind("paused", "requests wait, and flow control keeps the port from sending",
		"the switch, and receivers that are too slow")
	notTaken = kind("not-taken", "requests are posted, and the adapter doesn't begin them",
		"the program's doorbells; rate limits")
	draining = kind("draining", "the program has told the queue pair to drain (SQD), so that it begins no requests",
		"the program must return the queue pair to RTS")
	cqOverrun = kind("cq-overrun", "a completion queue has overrun: completions are lost",
		"a larger completion queue, or polling more often")
	notPolled = kind("not-polled", "completions wait, and the program doesn't poll them",
		"where the program's threads are")
	notWoken = kind("not-woken", "completions wait, their event was reported, and the program sleeps",
		"interrupts of the device: /proc/interrupts, and whether the program reads the right channel")
	notArmed = kind("not-armed", "completions wait, and the program sleeps without having asked for their event",
		"the program must arm the completion queue and then poll again, before it sleeps")
)
