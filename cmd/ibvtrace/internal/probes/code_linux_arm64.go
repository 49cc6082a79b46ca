package probes

// There is no code for arm64 as yet, and so no tracing of verbs that post and poll.
var probePost, probePoll, probeCall, probeStartPoll []byte
