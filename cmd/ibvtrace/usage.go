package main

const usage = `Usage: ibvtrace [OPTION...] [--] COMMAND [ARG...]
       ibvtrace [OPTION...] -p PID
       ibvtrace [OPTION...] --all
       ibvtrace report [OPTION...] FILE...    show traces that --json wrote
       ibvtrace figure [-o FILE] FILE...      draw them as an SVG or an HTML page
       ibvtrace diff FILE FILE                compare two traces
       ibvtrace objects [-p PID]              list the RDMA objects that exist now
       ibvtrace record [OPTION...] --all      keep the last events for when something fails
       ibvtrace dump [-o FILE]                get them
       ibvtrace completion bash|zsh|fish      print a shell's completion script

Run COMMAND, or attach to a process, and print the RDMA verbs that it, its
threads and its children call: one line per verb, with arguments, results, error
and duration. Posts and polls do not pass through the kernel. They are neither
shown nor slowed down unless --data or -e asks for them.

What is traced:
  -e EXPR   only events that EXPR selects; may be repeated. EXPR is
            [QUALIFIER=][!]VALUE[,VALUE]...:
              trace=    verbs (create_qp, rdma_connect, /REGEXP) or classes: control,
                        data, cm, event, map, open, exit, all, none; trace= may
                        be omitted
              object=   qp: any QP; qp:7: the one with this handle
              status=   failed, successful, unfinished
              device=   rxe0
            data verbs are traced only if an EXPR names them, as all and data
            do, or with --data
  --data    trace data verbs too: ibv_post_send, ibv_poll_cq, ibv_wr_*, ...
  --no-filter
            install no seccomp filter in COMMAND: it stops at every system call,
            which is slow, but ^C lets go what is left when COMMAND has ended
  --inject VERB[,VERB]...:KEY=VALUE[:KEY=VALUE]...
            make verbs fail, as strace's inject does; may be repeated. The program
            stops at its verbs, by ptrace. Keys:
              error=    ENOMEM: fail with this errno, and do nothing
              delay=    10ms: wait before the call
              event=    get_cm_event:event=REJECTED[:reason=28]: the program reads this
                        event instead of success; get_async_event:event=PORT_ERR: it
                        reads this event at once
              status=   poll_cq:status=RETRY_EXC_ERR: of a completion
              when=     3: the third call; 3+: and all later ones; 3+2: every other;
                        3..9: up to the ninth; all calls without when=
              device=   rxe0;  object=  qp:7;  process=  the name, or the ID
  -p PID    attach to a process, until SIGINT or its end; may be repeated, or a list. Of
            several, those that have ended are named, and the others traced
  --all     all processes of the machine, until SIGINT, with --how=bpf
  --cgroup DIR
            those in a cgroup and below it, until SIGINT, with --how=bpf
  --how WAY bpf: see the calls in the kernel. Nothing stops, and nobody can tell.
            It takes CAP_BPF and CAP_PERFMON, and does not see posts and polls.
            ptrace: stop the program where that is needed. The default is bpf if
            it can be had and no option needs ptrace, as --data and --inject do

How it is shown:
  -o FILE   write to FILE instead of stderr; compressed, if it ends in .gz. -o '|COMMAND':
            to the input of a shell command
  -t        begin lines with the time in seconds; -tt: microseconds (the default);
            -ttt: seconds since 1970; -r: seconds since the previous line
  --no-time no times, and processes, handles, keys and addresses by numbers in the
            order of their first use: lines of two runs can be compared with diff
  -T        show durations (the default); -T=false omits them
  -y        show the device of each verb
  -v        show everything
  -s N      show at most N bytes of data (32)
  --raw     show the ioctls' attributes too, one per line
  --color WHEN
            auto (on a terminal), always or never
  -c        print a summary at the end instead of lines: calls, errors and times of
            each verb, lifetimes of objects, and objects that were never destroyed
  -C        print lines and the summary
  -S COLUMN sort the summary by total, calls, errors, mean, max or name
  --json    write one JSON object per line instead of text, for report, figure and jq
  --chrome FILE
            also write FILE for ui.perfetto.dev
  -f        follow children (always on)
  -h        print this help
  --version print the version

Examples:
  ibvtrace ibv_devinfo
        what happens when a device is opened and queried
  ibvtrace --data -o trace ibv_rc_pingpong -g 1 localhost
        posts and polls too, in a file of their own
  ibvtrace -e failed ./server
        only the verbs that failed
  ibvtrace --inject reg_mr:error=ENOMEM:when=3+ ./server
        what the server does when it can register two memory regions only
  ibvtrace -o '|grep create_' ./server
        what a filter leaves of it, apart from the server's own messages
  ibvtrace -c -p 4711
        what a running server does, until ^C
  ibvtrace --data --json -o server.json ib_send_bw -d rxe0
  ibvtrace --data --json -o client.json ib_send_bw -d rxe0 192.168.1.2
  ibvtrace figure server.json client.json -o figure.svg
        both sides of a connection in one figure
  ibvtrace report -c server.json
        a summary of a trace
  ibvtrace --json ./server 2>&1 >/dev/null | jq 'select(.errno)'
        JSON for other programs

ibvtrace ends as COMMAND does: with its exit status, or by the same signal.
Status 127 is a COMMAND that doesn't exist, 126 one that can't be executed, and
other errors of ibvtrace give 1. SIGTERM is forwarded to COMMAND. When
COMMAND has ended and its children are left, such as a daemon, one ^C ends ibvtrace
and they go on. With ptrace, a second ^C kills them and ends ibvtrace, and if
ibvtrace is killed with SIGKILL, so is COMMAND, unless --no-filter is given.

Without BPF and CAP_SYS_ADMIN, set-user-ID programs run without the privileges they
would gain: ibvtrace must set no_new_privs to install its seccomp filter.
`

const reportUsage = `Usage: ibvtrace report [OPTION...] FILE...

Show traces that ibvtrace --json has written, merged by time. "-" is the
standard input. These options of ibvtrace -h are accepted: -e, -o, -t, -tt, -ttt,
-r, --no-time, -T, -y, -v, -s, --raw, --color, -c, -C, -S, --json, --chrome.

Examples:
  ibvtrace report trace.json
        the lines that ibvtrace would have printed
  ibvtrace report -c -S calls server.json client.json
        a summary of both
  ibvtrace report -e object=qp:7 -v trace.json
        what happened to one QP, in full
  ibvtrace report --chrome trace.perfetto.json -o /dev/null trace.json
        a file for ui.perfetto.dev
`
