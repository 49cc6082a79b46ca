package probes

// There are no probes for arm64, so data verbs of C programs are not traced there.
var probePost, probePoll, probeCall, probeStartPoll []byte
