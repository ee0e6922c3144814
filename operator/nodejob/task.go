package nodejob

import (
	"cmp"
	"errors"
	"fmt"
	"path"
	"slices"

	core "k8s.io/api/core/v1"

	"github.com/holdfast-storage/holdfast/api/v1beta1"
)

// Where the task Cleanup finds the pool, and the directory of Holdfast, in its container.
const (
	poolMount  = "/pool"
	stateMount = "/holdfast"
)

// Directories of Holdfast on a node: of pools for which the StorageCluster names no path, and of the records of disks.
const (
	poolsDirectory   = "/var/lib/holdfast/pools"
	recordsDirectory = "/var/lib/holdfast/disks"
)

// settings are what pods take from the StorageCluster.
type settings struct {
	namespace   string
	image       v1beta1.Image // of Holdfast, for its own tasks
	pullSecrets []core.LocalObjectReference
	pools       []v1beta1.PoolSpec
	unreadable  string // why the StorageCluster is unreadable; empty if it is not
}

type work struct {
	image      v1beta1.Image
	command    []string
	args       []string
	hostPath   string
	mountPath  string
	records    bool // the records of disks are mounted beneath stateMount, read-only
	privileged bool
	pulls      bool // the image only has to be pulled
}

func workOf(spec *v1beta1.NodeJobSpec, s settings) (work, error) {
	switch spec.Task {
	case "":
		return work{
			image: spec.Image, command: spec.Command, args: spec.Args,
			hostPath: spec.HostPath, mountPath: spec.MountPath, privileged: spec.Privileged,
		}, nil
	case v1beta1.PullTask:
		if spec.TaskImage == "" {
			return work{}, errors.New("the job cannot run: task Pull needs taskImage, the image to pull")
		}
		// The image may lack this program: when that shows, the image is pulled, and nothing of it has run.
		return work{image: spec.TaskImage, command: []string{"/only-the-image-is-wanted"}, pulls: true}, nil
	case v1beta1.CleanupTask:
		if spec.Pool == "" {
			return work{}, errors.New("the job cannot run: task Cleanup needs pool, the name of the pool to wipe")
		}
		return work{
			image: s.image, args: []string{"cleanup", "--path=" + poolMount},
			mountPath: poolMount, privileged: true,
		}, nil
	}
	return work{}, fmt.Errorf("the job cannot run: task %q is not known; %s and %s are", spec.Task, v1beta1.CleanupTask, v1beta1.PullTask)
}

// place is the location of a pool on a node.
type place struct {
	dir  string
	disk bool // a disk has to be mounted there
}

// where returns the location of a pool on a node: as its agent reported it, or else as the StorageCluster specifies it.
func (o *observed) where(pool, node string) (p place, known bool) {
	i := slices.IndexFunc(o.settings.pools, func(p v1beta1.PoolSpec) bool { return p.Name == pool })
	if known = i >= 0; known {
		p = place{cmp.Or(o.settings.pools[i].Path, path.Join(poolsDirectory, pool)), o.settings.pools[i].Devices != nil}
	}
	for _, has := range o.pools[node] {
		if has.Name == pool && path.IsAbs(has.Path) && path.Clean(has.Path) == has.Path {
			return place{has.Path, p.disk && p.dir == has.Path}, true
		}
	}
	return p, known
}

// on returns the work for a node: the location of the pool for the task Cleanup differs between nodes.
func (r *round) on(node string) work {
	w := r.work
	if r.job.Spec.Task != v1beta1.CleanupTask {
		return w
	}
	at, _ := r.where(r.job.Spec.Pool, node)
	w.hostPath, w.args = at.dir, slices.Clone(w.args)
	if at.dir == path.Join(poolsDirectory, r.job.Spec.Pool) { // where disks are mounted
		w.records = true
		w.args = append(w.args, "--pool="+r.job.Spec.Pool, "--state-dir="+stateMount)
	}
	if at.disk {
		w.args = append(w.args, "--disk")
	}
	return w
}

// unknownPlace says what to do about a pool whose directory is unknown.
func unknownPlace(pool string) string {
	return fmt.Sprintf("the directory of pool %s is not known: it is neither in spec.pools of the StorageCluster nor in the node's StorageNode. "+
		"Put it back into spec.pools, with nodeSelectorTerms that match no node, or run on the node: holdfast cleanup --path DIRECTORY", pool)
}

// refusal is why the task must not run on a node; "" if it may.
func (r *round) refusal(node string) string {
	if _, known := r.where(r.job.Spec.Pool, node); r.job.Spec.Task == v1beta1.CleanupTask && !known {
		return cmp.Or(r.refusals[node], unknownPlace(r.job.Spec.Pool))
	}
	return r.refusals[node]
}
