package upgrade

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/utils/ptr"

	"github.com/holdfast-storage/holdfast/api/v1beta1"
	"github.com/holdfast-storage/holdfast/operator/rollout"
)

// goOn plans the current step.
func (r *round) goOn() {
	steps := map[v1beta1.UpgradeStep]func(){
		v1beta1.StepPullImage: r.pullImage, v1beta1.StepPauseCluster: r.pauseClusterCtrl, v1beta1.StepPreflight: r.preflight,
		v1beta1.StepUpgradeInit: r.upgradeInit, v1beta1.StepScaleDown: r.scaleDown, v1beta1.StepNodes: r.rollNodes,
		v1beta1.StepNFSServers: r.nfsServers, v1beta1.StepController: r.rollController, v1beta1.StepScaleUp: r.scaleUp,
		v1beta1.StepUpgradeComplete: r.upgradeComplete,
	}
	do, known := steps[r.status.Step]
	if !known {
		r.fail(fmt.Sprintf("step %q is not known to this version", r.status.Step))
		return
	}
	// From here on the StorageCluster must stay paused; a user may have unpaused it.
	r.pause = r.status.Step != v1beta1.StepPullImage && r.status.Step != v1beta1.StepUpgradeComplete && !r.pausedByThis()
	do()
}

// did says what the current step has done, when it ends.
func (r *round) did() string {
	to := r.status.To
	switch r.status.Step {
	case v1beta1.StepPullImage:
		text := fmt.Sprintf("%s is on the nodes, and reads the metadata on their disks: %s", to, said(r.job))
		if r.nfsJob != nil {
			text += fmt.Sprintf("; so does %s on those of NFS servers: %s", r.nfsJob.Spec.Image, said(r.nfsJob))
		}
		if r.cephJob != nil {
			text += fmt.Sprintf("; so does %s for pools in Ceph clusters: %s", r.cephJob.Spec.Image, said(r.cephJob))
		}
		return text
	case v1beta1.StepPauseCluster:
		return "the controller is paused for this upgrade"
	case v1beta1.StepPreflight:
		return "all nodes and the controller are ready"
	case v1beta1.StepUpgradeInit:
		return fmt.Sprintf("new node pods run %s", to)
	case v1beta1.StepScaleDown:
		return fmt.Sprintf("%d applications are stopped", len(r.apps.stopped))
	case v1beta1.StepNodes:
		return fmt.Sprintf("%d/%d nodes run %s", r.status.UpgradedNodes, r.status.DesiredNodes, to)
	case v1beta1.StepNFSServers:
		if len(r.nfs.unawaited) > 0 {
			return fmt.Sprintf("NFS servers run the image of %s; not waited for, since they did not serve when the upgrade began or cannot be updated: %s",
				to, strings.Join(r.nfs.unawaited, ", "))
		}
		return fmt.Sprintf("all NFS servers run the image of %s", to)
	case v1beta1.StepController:
		return fmt.Sprintf("the controller runs %s", to)
	case v1beta1.StepScaleUp:
		return "the applications are started" + r.notStarted()
	}
	return r.step().Message
}

func (r *round) pausedByThis() bool {
	return r.cluster != nil && r.cluster.Spec.Paused && r.cluster.Annotations[v1beta1.PausedByAnnotation] == r.upgrade.Name
}

func (r *round) pullImage() {
	jobs := []*v1beta1.NodeJob{r.job}
	if r.nfs.image != "" || r.nfsJob != nil {
		jobs = append(jobs, r.nfsJob)
	}
	if r.ceph != "" || r.cephJob != nil {
		jobs = append(jobs, r.cephJob)
	}
	if slices.Contains(jobs, nil) {
		r.bringJobs = true
		r.wait(r.step().StartTime, "a NodeJob to be created")
		return
	}
	var works []string
	for _, job := range jobs {
		switch job.Status.Phase {
		case v1beta1.JobCompleted:
		case v1beta1.JobFailed:
			r.fail(fmt.Sprintf("NodeJob %s failed: %s", job.Name, said(job)))
			return
		default: // the job has a timeout of its own
			works = append(works, fmt.Sprintf("NodeJob %s: %s", job.Name, said(job)))
		}
	}
	if len(works) > 0 {
		r.stay(strings.Join(works, "; "))
		return
	}
	// Nothing was written to the StorageCluster yet.
	if why := r.incompatible(jobs); why != "" {
		r.fail(why)
		return
	}
	r.enter(v1beta1.StepPauseCluster, "the controller is paused for this upgrade")
}

// said is the message of a job.
func said(job *v1beta1.NodeJob) string {
	if c := meta.FindStatusCondition(job.Status.Conditions, v1beta1.CompleteCondition); c != nil {
		return c.Message
	}
	return "it has not started"
}

func (r *round) pauseClusterCtrl() {
	switch { // without a timeout: the pause of an administrator may last for longer
	case r.pause && r.cluster.Spec.Paused: // by an administrator, while the image was pulled
		r.pause = false
		r.stay(r.turn())
	case r.pause:
		r.stay("the StorageCluster to be paused")
	default:
		r.enter(v1beta1.StepPreflight, "checking that all nodes are ready")
	}
}

func (r *round) preflight() {
	if r.apps.unknown {
		r.waitForList()
		return
	}
	if r.offline() && len(r.apps.blockers) > 0 {
		r.fail("these use volumes and cannot be stopped and restarted, so stop them first: " + strings.Join(r.apps.blockers, ", "))
		return
	}
	// A rollout that the StorageCluster's controller started before the pause has to be finished here.
	if !r.rolled(r.nodes.image) {
		return
	}
	if !r.controller.Ready {
		r.wait(r.step().StartTime, "the controller to be ready: "+r.controller.Waiting)
		return
	}
	r.enter(v1beta1.StepUpgradeInit, fmt.Sprintf("new node pods run %s", r.status.To))
}

// incompatible says why one of the new images must not open the pools, or could not be rolled back after that.
func (r *round) incompatible(jobs []*v1beta1.NodeJob) string {
	for _, job := range jobs {
		for _, n := range job.Status.Nodes {
			v, err := parseVersion(n.Log)
			if err != nil {
				return fmt.Sprintf("node %s: %s does not report which metadata it reads: %v", n.Name, job.Spec.Image, err)
			}
			switch {
			case v.Metadata.Reads < r.metadata:
				return fmt.Sprintf("%s reads metadata up to version %d, and the metadata on disk has version %d: a downgrade to that release is not possible",
					job.Spec.Image, v.Metadata.Reads, r.metadata)
			case v.Metadata.Writes > r.metadata && r.undoes():
				return fmt.Sprintf("%s writes metadata of version %d, and %s reads it up to version %d, so it could not open the pools again after a rollback: "+
					"upgrade to a release between them first, or set spec.rollback to false", job.Spec.Image, v.Metadata.Writes, r.status.From, r.metadata)
			}
		}
	}
	return ""
}

func (r *round) upgradeInit() {
	r.apply = &images{nodes: r.status.To, controller: r.status.From}
	switch {
	case !r.nodes.none && r.nodes.image != r.status.To:
		r.wait(r.step().StartTime, "the DaemonSet to name "+string(r.status.To))
	case r.offline():
		r.enter(v1beta1.StepScaleDown, "stopping the applications that use volumes")
	default:
		r.enter(v1beta1.StepNodes, "replacing the node pods one by one")
	}
}

// waitForList waits until the applications can be listed.
func (r *round) waitForList() {
	r.wait(r.step().StartTime, "the applications that use volumes to be listed")
	r.soon()
}

func (r *round) scaleDown() {
	switch {
	case r.apps.unknown:
		r.waitForList()
	case len(r.apps.running) > 0:
		r.stop = r.apps.running
		r.wait(r.step().StartTime, fmt.Sprintf("%s to stop", names(r.apps.running)))
		r.soon()
	case len(r.apps.pods) > 0:
		r.wait(r.step().StartTime, "the pods that use volumes to end: "+strings.Join(r.apps.pods, ", "))
		r.soon()
	default:
		r.enter(v1beta1.StepNodes, fmt.Sprintf("%d applications are stopped; replacing the node pods one by one", len(r.apps.stopped)))
	}
}

func (r *round) rollNodes() {
	r.apply = &images{nodes: r.status.To, controller: r.status.From}
	if r.rolled(r.status.To) {
		r.enter(v1beta1.StepNFSServers, "updating NFS servers to the new image")
	}
}

// rolled continues with the nodes, and says whether all of them run the image and are ready.
func (r *round) rolled(image v1beta1.Image) bool {
	if r.nodes.none {
		return true
	}
	state, more := r.nodes.rollout, false
	if r.nodes.image != image {
		state = rollout.Result{Waiting: "the DaemonSet to name " + string(image)}
	} else {
		more = int32(state.Updated) > r.status.UpgradedNodes
		r.status.UpgradedNodes, r.status.DesiredNodes = int32(state.Updated), int32(state.Total)
	}
	if state.Done && len(r.nodes.unready) == 0 {
		r.status.Node, r.status.NodeStartTime = "", nil
		return true
	}
	if state.Done {
		state.Waiting, state.Node = listed(r.nodes.unready), r.nodes.unready[0].name
	}
	r.roll = image != "" && r.nodes.image == image && !state.Done
	// Another node that is not ready is no progress: of an image that crashes now and then, the nodes are so in turns.
	if r.status.NodeStartTime == nil || more {
		start := timeOf(r.now)
		r.status.NodeStartTime = &start
	}
	r.status.Node = cmp.Or(state.Node, r.status.Node)
	r.wait(*r.status.NodeStartTime, state.Waiting)
	return false
}

func (r *round) nfsServers() {
	if r.nfs.unknown {
		r.wait(ptr.Deref(r.status.NodeStartTime, r.step().StartTime), "the NFS servers to be looked at")
		r.soon()
		return
	}
	if r.nfs.next == "" {
		r.enter(v1beta1.StepController, "replacing the controller")
		return
	}
	// A server that stops again after others were updated is no progress, as with the nodes.
	if r.status.NodeStartTime == nil || r.nfs.next > v1beta1.ServerOf(r.status.Node) {
		start := timeOf(r.now)
		r.status.Node, r.status.NodeStartTime = v1beta1.NodeOfServer(r.nfs.next), &start
	}
	r.wait(*r.status.NodeStartTime, r.nfs.waiting)
	r.soon() // their pods are watched by others
}

func (r *round) rollController() {
	r.apply = &images{nodes: r.status.To, controller: r.status.To}
	switch {
	case !r.controllerRuns(r.status.To):
	case r.offline():
		r.enter(v1beta1.StepScaleUp, "starting the applications again")
	default:
		r.enter(v1beta1.StepUpgradeComplete, "writing the image into the StorageCluster")
	}
}

// controllerRuns waits until all pods of the controller run the image.
func (r *round) controllerRuns(image v1beta1.Image) bool {
	asked := "the controller to be asked to run " + string(image)
	switch {
	case r.controller.Image == "": // it was deleted
		r.wait(r.step().StartTime, cmp.Or(r.controller.Waiting, asked))
		return false
	case r.controller.Image != image:
		r.wait(r.step().StartTime, asked)
		return false
	case !r.controller.Ready:
		r.wait(r.step().StartTime, r.controller.Waiting)
		return false
	}
	return true
}

func (r *round) scaleUp() {
	over := r.step().StartTime.Add(max(r.timeout(), defaultNodeTimeout)).Before(r.now)
	if !over && r.starts() { // one that cannot be started, as for an admission policy, must not keep the cluster paused
		return
	}
	r.enter(v1beta1.StepUpgradeComplete, "writing the image into the StorageCluster")
}

// starts starts the applications, and says whether to wait for them.
func (r *round) starts() bool {
	if !r.apps.unknown && len(r.apps.stopped) == 0 {
		return false
	}
	r.start = r.apps.stopped
	r.stay(cmp.Or(names(r.apps.stopped), "the applications that were stopped") + " to be started")
	r.soon()
	return true
}

// notStarted says which applications have to be started by hand.
func (r *round) notStarted() string {
	switch {
	case r.apps.unknown:
		return "; start the applications that have annotation " + v1beta1.ReplicasAnnotation + ", which could not be listed: " + r.trouble
	case len(r.apps.stopped) > 0:
		return fmt.Sprintf("; start %s, which could not be started: %s", names(r.apps.stopped), cmp.Or(r.trouble, "they are still scaled to 0"))
	}
	return ""
}

func (r *round) upgradeComplete() {
	if r.pausedByThis() || r.current != r.status.To { // the image may have gone from the spec again, as its default
		r.unpause, r.setImage = true, r.status.To
		r.stay("the StorageCluster to be unpaused")
		return
	}
	r.finish(v1beta1.UpgradeCompleted, fmt.Sprintf("%s runs everywhere", r.status.To))
}

func listed(nodes []unreadyNode) string {
	var texts []string
	for _, n := range nodes {
		texts = append(texts, fmt.Sprintf("node %s: %s", n.name, n.why))
	}
	return strings.Join(texts, "; ")
}

func names(all []application) string {
	var texts []string
	for _, a := range all {
		texts = append(texts, a.String())
	}
	return strings.Join(texts, ", ")
}
