package export

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
)

// A pod is a pod of Kubernetes.
type pod struct{ namespace, name, uid string }

// podOf returns the pod of a process: its UID from the name of the cgroup, and its name from what the container's
// runtime has written, if that is mounted here. Without these there is none. Below user.slice, users choose the
// names of cgroups, and below that of a container, its programs.
func podOf(root, cgroup, container string) (p pod) {
	if strings.Contains(cgroup, "/user.slice/") {
		return p
	}
	if container == "" {
		p.uid = podUID(cgroup)
		return p
	}
	outside, _, _ := strings.Cut(cgroup, container)
	p.uid = podUID(outside)
	for _, r := range []struct{ file, namespace, name string }{
		{"run/containerd/io.containerd.runtime.v2.task/k8s.io/ID/config.json", "io.kubernetes.cri.sandbox-namespace", "io.kubernetes.cri.sandbox-name"},
		{"run/k3s/containerd/io.containerd.runtime.v2.task/k8s.io/ID/config.json", "io.kubernetes.cri.sandbox-namespace", "io.kubernetes.cri.sandbox-name"},
		{"run/containers/storage/overlay-containers/ID/userdata/config.json", "io.kubernetes.pod.namespace", "io.kubernetes.pod.name"},
	} {
		b, err := os.ReadFile(filepath.Join(root, strings.Replace(r.file, "ID", container, 1)))
		var config struct{ Annotations map[string]string }
		if err != nil || json.Unmarshal(b, &config) != nil {
			continue
		}
		p.namespace, p.name = config.Annotations[r.namespace], config.Annotations[r.name]
		break
	}
	return p
}

// podUID returns the UID in the name that the kubelet gives the cgroup of a pod: a folder "podUID", or a slice
// "kubepods-…-podUID.slice" with underscores for dashes.
func podUID(cgroup string) string {
	const length, digits = len("00000000-0000-0000-0000-000000000000"), 32 // those of static pods have no dashes
	// Seen from another pod, with its own namespace of cgroups, the name begins below kubepods.
	if !strings.Contains(cgroup, "kubepods") && !strings.HasPrefix(cgroup, "/../") {
		return ""
	}
	for part := range strings.SplitSeq(cgroup, "/") {
		part = strings.TrimSuffix(part, ".slice")
		i := strings.LastIndex(part, "pod")
		if i < 0 {
			continue
		}
		uid := strings.ReplaceAll(part[i+len("pod"):], "_", "-")
		if (len(uid) == length || len(uid) == digits) && strings.Trim(uid, "0123456789abcdef-") == "" {
			return uid
		}
	}
	return ""
}
