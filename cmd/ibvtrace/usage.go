package main

const usage = `Usage: ibvtrace [OPTION...] [--] COMMAND [ARG...]
       ibvtrace [OPTION...] -p PID
       ibvtrace report [OPTION...] FILE...    show traces that --json wrote
       ibvtrace figure [-o FILE] FILE...      draw them: an SVG or an HTML page
       ibvtrace objects [-p PID]              the RDMA objects that are there now
       ibvtrace completion bash|zsh|fish      what a shell needs to complete this

Run COMMAND, or attach to a process, and print the RDMA verbs that it, its
threads and its children call: one line per verb, with arguments, results, error
and duration. Posting and polling do not pass through the kernel; they are
neither shown nor slowed down unless --data or -e asks for them.

What:
  -e EXPR   only what EXPR chooses; may be repeated. EXPR is [QUALIFIER=][!]VALUES:
              trace=    verbs (create_qp, rdma_connect, /REGEXP) or classes: control,
                        data, cm, event, map, open, exit, all, none; trace= may
                        be left out
              object=   qp: any QP; qp:7: the one with this handle
              status=   failed, successful, unfinished
              device=   rxe0
            data verbs are traced only if one of these names them, -e all or
            -e data, or with --data
  --data    verbs that post and poll too: ibv_post_send, ibv_poll_cq, ibv_wr_*, ...
  --stop    stop the program at every control verb, and put nothing into it
  -p PID    attach to a process, until SIGINT or its end; may be repeated

How:
  -o FILE   write to FILE instead of stderr
  -t        begin lines with the time in seconds; -tt: microseconds (the default);
            -ttt: seconds since 1970; -r: seconds since the line before
  -T        durations; -T=false leaves them out
  -y        the device of each verb
  -v        leave nothing out
  -s N      show at most N bytes of data and strings (32)
  --raw     the ioctls' attributes too, a line each
  --color WHEN
            auto (on a terminal), always or never
  -c        a summary at the end instead of lines: calls, errors and times of each
            verb, lives of objects, what was never destroyed
  -C        lines and the summary
  -S COLUMN sort the summary by total, calls, errors, mean, max or name
  --json    one JSON object per line instead of text, for report, figure and jq
  --chrome FILE
            write FILE too, for ui.perfetto.dev
  -f        follow children: always so
  -h        this help

Examples:
  ibvtrace ibv_devinfo
        what happens when a device is opened and queried
  ibvtrace --data -o trace ibv_rc_pingpong -g 1 localhost
        posts and polls too; apart from what the program prints
  ibvtrace -e failed ./server
        only the verbs that failed
  ibvtrace -c -p 4711
        what a running server does, until ^C
  ibvtrace --data --json -o server.json ib_send_bw -d rxe0
  ibvtrace --data --json -o client.json ib_send_bw -d rxe0 192.168.1.2
  ibvtrace figure server.json client.json -o figure.svg
        both sides of a connection in one picture
  ibvtrace report -c server.json
        a table of what was written down
  ibvtrace --json ./server 2>&1 >/dev/null | jq 'select(.errno)'
        for programs: JSON

ibvtrace ends as COMMAND does: with its exit status, or by the same signal.
Errors of ibvtrace itself give status 1. SIGTERM is handed on to COMMAND. If
ibvtrace is killed with SIGKILL, so is COMMAND.

Without CAP_SYS_ADMIN, set-user-ID programs run without the rights they would
gain: the kernel takes a filter from such a user only with no_new_privs.
`

const reportUsage = `Usage: ibvtrace report [OPTION...] FILE...

Show traces that ibvtrace --json has written, merged by time. "-" is the
standard input. The options are those of ibvtrace -h that say what is shown and
how: -e, -o, -t, -tt, -ttt, -r, -T, -y, -v, -s, --raw, --color, -c, -C, -S, --json,
--chrome.

Examples:
  ibvtrace report trace.json
        the lines that ibvtrace would have printed
  ibvtrace report -c -S calls server.json client.json
        a table of both
  ibvtrace report -e object=qp:7 -v trace.json
        what happened to one QP, in full
  ibvtrace report --chrome trace.perfetto.json -o /dev/null trace.json
        for ui.perfetto.dev
`
