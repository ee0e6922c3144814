package nodejob

import (
	"errors"
	"fmt"
	"path"
	"slices"
	"strings"

	core "k8s.io/api/core/v1"

	v1 "github.com/holdfast-storage/holdfast/api/v1"
)

// The tasks that Holdfast brings.
const (
	TaskCleanup = "cleanup"
	TaskPull    = "pull"
)

// Where the task cleanup finds the pool, in its container.
const poolMount = "/pool"

// poolsDirectory has the pools for which the StorageCluster names no path.
const poolsDirectory = "/var/lib/holdfast/pools"

// settings are what pods take from the rest of the cluster.
type settings struct {
	namespace   string
	image       v1.Image // of Holdfast, for its own tasks
	pullSecrets []core.LocalObjectReference
	pools       []v1.PoolSpec
}

// work is what runs on each node.
type work struct {
	image      v1.Image
	command    []string
	args       []string
	hostPath   string
	mountPath  string
	privileged bool
	pulls      bool // it is enough that the image has come
}

var errTask = errors.New("the job cannot run")

func workOf(spec *v1.NodeJobSpec, s settings) (work, error) {
	switch spec.Task {
	case "":
		if err := checkOwn(spec); err != nil {
			return work{}, err
		}
		return work{
			image: spec.Image, command: spec.Command, args: spec.Args,
			hostPath: spec.HostPath, mountPath: spec.MountPath, privileged: spec.Privileged,
		}, nil
	case TaskPull:
		if spec.TaskImage == "" {
			return work{}, fmt.Errorf("%w: task pull needs taskImage, the image to bring", errTask)
		}
		// The image may lack this program: it is there by the time that this is found out, and nothing of it runs.
		return work{image: spec.TaskImage, command: []string{"/only-the-image-is-wanted"}, pulls: true}, nil
	case TaskCleanup:
		if spec.Pool == "" {
			return work{}, fmt.Errorf("%w: task cleanup needs pool, the name of the pool to wipe", errTask)
		}
		dir, err := poolDirectory(spec.Pool, s.pools)
		if err != nil {
			return work{}, err
		}
		return work{
			image: s.image, args: []string{"cleanup", "--path=" + poolMount},
			hostPath: dir, mountPath: poolMount, privileged: true,
		}, nil
	}
	return work{}, fmt.Errorf("%w: task %q is not known; %s and %s are", errTask, spec.Task, TaskCleanup, TaskPull)
}

// checkOwn refuses a job of which no pod can be made. The schema has refused it before, unless it was an older one.
func checkOwn(spec *v1.NodeJobSpec) error {
	switch {
	case strings.TrimSpace(string(spec.Image)) != string(spec.Image) || spec.Image == "":
		return fmt.Errorf("%w: image %.80q is none: give one such as registry.example/tool:v1", errTask, spec.Image)
	case (spec.HostPath == "") != (spec.MountPath == ""):
		return fmt.Errorf("%w: hostPath %.80q and mountPath %.80q belong together: give both or none", errTask, spec.HostPath, spec.MountPath)
	}
	for _, dir := range []string{spec.HostPath, spec.MountPath} {
		if dir != "" && (!path.IsAbs(dir) || slices.Contains(strings.Split(dir, "/"), "..") || len(dir) > 255 || strings.ContainsAny(dir, ":\x00\n")) {
			return fmt.Errorf("%w: the directory %.80q is not allowed: it must be absolute, without .. or a colon, of at most 255 characters", errTask, dir)
		}
	}
	return nil
}

// poolDirectory is where a pool lies on a node. Of one that the StorageCluster does not name any more it is the default.
func poolDirectory(pool string, pools []v1.PoolSpec) (string, error) {
	i := slices.IndexFunc(pools, func(p v1.PoolSpec) bool { return p.Name == pool })
	if i >= 0 && pools[i].Path != "" {
		return pools[i].Path, nil
	}
	if pool != path.Base(path.Clean("/"+pool)) {
		return "", fmt.Errorf("%w: %q is no name of a pool", errTask, pool)
	}
	return path.Join(poolsDirectory, pool), nil
}
