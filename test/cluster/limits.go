package main

import (
	"context"
	"fmt"
	"os"
	"strconv"
	"strings"
)

// watchersFile limits how many inotify instances root may have. A kubelet and a containerd have about a dozen, and the
// kernel's 128 are too few for some clusters at once.
const (
	watchersFile = "/proc/sys/fs/inotify/max_user_instances"
	watchers     = 1024
)

// raiseLimits raises what is too low. It stays so when the cluster is gone, and until the machine is started again.
func raiseLimits(context.Context, progress) (string, error) {
	now, err := os.ReadFile(watchersFile)
	if err != nil {
		return "", err
	}
	was, err := strconv.Atoi(strings.TrimSpace(string(now)))
	if err != nil || was >= watchers {
		return "as they are", err
	}
	return fmt.Sprintf("fs.inotify.max_user_instances raised from %d to %d", was, watchers), os.WriteFile(watchersFile, []byte(strconv.Itoa(watchers)), 0)
}
