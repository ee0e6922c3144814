package upgrade

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/holdfast-storage/holdfast/api/v1beta1"
	"github.com/holdfast-storage/holdfast/operator/rollout"
)

var begun = time.Date(2030, 1, 2, 3, 4, 5, 0, time.UTC)

const (
	oldImage v1beta1.Image = "registry:5000/holdfast:v1"
	newImage v1beta1.Image = "registry:5000/holdfast:v2"
)

// scene is an upgrade in a cluster of three nodes that does at once what a plan says.
type scene struct {
	*testing.T
	upgrade *v1beta1.StorageUpgrade
	observed
	plan     plan
	pods     map[string]v1beta1.Image // what runs, by node
	reported []string
	broken   map[string]string // nodes that do not become ready with the new image, and why
	// storage is of nodes whose pods are ready and whose storage is not, whatever they run, and why.
	storage map[string]string
	apps    []application
	stuck   bool   // whether the applications cannot be started
	log     string // what the new image says of its version
}

func newScene(t *testing.T) *scene {
	t.Helper()
	s := &scene{
		T: t,
		upgrade: &v1beta1.StorageUpgrade{
			ObjectMeta: metav1.ObjectMeta{Name: "up", UID: "up-uid"}, Spec: v1beta1.StorageUpgradeSpec{Version: "v2"},
		},
		observed: observed{
			now: begun, current: oldImage, metadata: 1,
			cluster: &v1beta1.StorageCluster{ObjectMeta: metav1.ObjectMeta{Name: "holdfast"}},
		},
		pods:   map[string]v1beta1.Image{"a": oldImage, "b": oldImage, "c": oldImage},
		broken: map[string]string{}, storage: map[string]string{},
		log: `{"version":"v2","metadata":{"writes":1,"reads":1}}` + "\n",
	}
	s.nodes.image, s.controller = oldImage, rollout.Workload{Image: oldImage, Ready: true}
	return s
}

// look is what a controller would observe.
func (s *scene) look() observed {
	o := s.observed
	o.nodes.rollout = rollout.Result{Total: len(s.pods), Done: true}
	o.nodes.unready = nil
	for _, name := range []string{"a", "b", "c"} {
		image, there := s.pods[name]
		switch {
		case !there:
			continue
		case image == newImage && s.broken[name] != "":
			o.nodes.rollout.Done, o.nodes.rollout.Node, o.nodes.rollout.Waiting = false, name, "pod p of node "+name+" to become ready: "+s.broken[name]
			o.nodes.unready = append(o.nodes.unready, unreadyNode{name, s.broken[name]})
		case image == o.nodes.image:
			o.nodes.rollout.Updated++
		case o.nodes.rollout.Done:
			o.nodes.rollout.Done, o.nodes.rollout.Node, o.nodes.rollout.Waiting = false, name, "the pod of node "+name
		}
		if why := s.storage[name]; why != "" {
			o.nodes.unready = append(o.nodes.unready, unreadyNode{name, why})
		}
	}
	o.apps = applications{unknown: s.observed.apps.unknown}
	for _, a := range s.apps {
		if a.before != "" {
			o.apps.stopped = append(o.apps.stopped, a)
		}
		if a.replicas > 0 {
			o.apps.running = append(o.apps.running, a)
			o.apps.pods = append(o.apps.pods, a.name+"-0")
		}
	}
	o.apps.blockers = s.observed.apps.blockers
	return o
}

// step makes one plan and carries it out.
func (s *scene) step() *scene {
	s.Helper()
	o := s.look()
	s.plan = newPlan(s.upgrade, o)
	p := s.plan
	if p.finalizer != nil {
		s.upgrade.Finalizers = nil
		if *p.finalizer {
			s.upgrade.Finalizers = []string{v1beta1.OperatorFinalizer}
		}
	}
	if p.bringJobs {
		running := func(name string, image v1beta1.Image) *v1beta1.NodeJob {
			if image == "" {
				return nil
			}
			return &v1beta1.NodeJob{
				ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: v1beta1.NodeJobSpec{Image: image},
				Status: v1beta1.NodeJobStatus{Phase: v1beta1.JobRunning},
			}
		}
		s.job, s.nfsJob = running(jobName(s.upgrade), p.status.To), running(nfsJobName(s.upgrade), o.nfs.image)
		s.cephJob = running(cephJobName(s.upgrade), o.ceph)
	}
	s.change(p, o)
	for _, e := range p.events {
		s.reported = append(s.reported, e.reason)
	}
	s.upgrade.Status = p.status
	return s
}

func (s *scene) change(p plan, o observed) {
	if p.pause {
		s.cluster.Spec.Paused, s.cluster.Annotations = true, map[string]string{v1beta1.PausedByAnnotation: s.upgrade.Name}
	}
	if p.apply != nil && s.trouble == "" { // which says that it failed
		s.nodes.image, s.controller.Image = p.apply.nodes, p.apply.controller
	}
	if p.roll {
		s.pods[o.nodes.rollout.Node] = s.nodes.image
	}
	for i, a := range s.apps {
		same := func(b application) bool { return a.name == b.name }
		switch {
		case slices.ContainsFunc(p.stop, same):
			s.apps[i].before, s.apps[i].replicas = fmt.Sprint(a.replicas), 0
		case slices.ContainsFunc(p.start, same) && !s.stuck:
			s.apps[i].before, s.apps[i].replicas = "", 3
		}
	}
	if p.unpause {
		s.cluster.Spec.Paused, s.cluster.Annotations = false, nil
	}
	if p.setImage != "" {
		s.cluster.Spec.Images.Holdfast, s.current = p.setImage, p.setImage
	}
}

// brought ends the NodeJob.
func (s *scene) brought() {
	s.job.Status = v1beta1.NodeJobStatus{Phase: v1beta1.JobCompleted, Nodes: []v1beta1.NodeResult{{Name: "a", Log: s.log}, {Name: "b", Log: s.log}}}
}

// until steps until a step has been entered, or the upgrade has ended.
func (s *scene) until(step v1beta1.UpgradeStep) *scene {
	s.Helper()
	for range 60 {
		if s.upgrade.Status.Step == step || hasEnded(s.upgrade) {
			return s
		}
		if s.step(); s.job != nil && s.job.Status.Phase == v1beta1.JobRunning {
			s.brought()
		}
	}
	s.Fatalf("it stays at %+v", s.upgrade.Status)
	return s
}

// end steps until nothing is left to be done.
func (s *scene) end() *scene {
	s.Helper()
	return s.until("none").step()
}

// offline is an upgrade that stops a database.
func (s *scene) offline() *scene {
	s.upgrade.Spec.Strategy = v1beta1.OfflineUpgrade
	s.apps = []application{{kind: "StatefulSet", namespace: "team", name: "db", replicas: 3}}
	return s
}

// says is the message of a condition of the upgrade.
func (s *scene) says(condition string) string {
	s.Helper()
	c := meta.FindStatusCondition(s.upgrade.Status.Conditions, condition)
	if c == nil {
		s.Fatalf("it has no condition %s: %+v", condition, s.upgrade.Status)
	}
	return c.Message
}

func (s *scene) steps() string {
	var names []string
	for _, st := range s.upgrade.Status.Steps {
		names = append(names, string(st.Name))
	}
	return strings.Join(names, " ")
}

func (s *scene) want(phase v1beta1.UpgradePhase, runs v1beta1.Image, message string) {
	s.Helper()
	st := s.upgrade.Status
	said := s.says(v1beta1.CompleteCondition)
	if st.Phase != phase || st.Completed != (phase == v1beta1.UpgradeCompleted) || !strings.Contains(said, message) {
		s.Errorf("it is %s: %s; want %s: %s", st.Phase, said, phase, message)
	}
	for name, image := range s.pods {
		if image != runs {
			s.Errorf("node %s runs %s, want %s", name, image, runs)
		}
	}
	if s.nodes.image != runs || s.controller.Image != runs {
		s.Errorf("the DaemonSet names %s and the controller runs %s, want %s", s.nodes.image, s.controller.Image, runs)
	}
	if s.cluster != nil && (s.cluster.Spec.Paused || s.cluster.Annotations[v1beta1.PausedByAnnotation] != "") {
		s.Error("the cluster is still paused")
	}
	if len(s.upgrade.Finalizers) > 0 {
		s.Error("its finalizer is left")
	}
	for _, a := range s.apps {
		if a.replicas != 3 && !s.stuck || a.before != "" && !s.stuck {
			s.Errorf("%s was not started: %+v", a, a)
		}
	}
	for _, step := range st.Steps {
		if step.EndTime == nil {
			s.Errorf("step %s has no end", step.Name)
		}
	}
}

const (
	rolling = "PullImage PauseCluster Preflight UpgradeInit Nodes NFSServers Controller UpgradeComplete"
	offline = "PullImage PauseCluster Preflight UpgradeInit ScaleDown Nodes NFSServers Controller ScaleUp UpgradeComplete"
)

func TestPlan_RollingUpgradeGoesStepByStepAndNodeByNode(t *testing.T) {
	s := newScene(t).until(v1beta1.StepNodes)
	var seen []string
	for s.upgrade.Status.Step == v1beta1.StepNodes {
		if s.step(); s.plan.roll {
			seen = append(seen, s.upgrade.Status.Node)
		}
		if s.controller.Image != oldImage {
			t.Fatalf("after nodes %v, the controller runs %s", seen, s.controller.Image)
		}
	}
	if !slices.Equal(seen, []string{"a", "b", "c"}) {
		t.Errorf("the nodes were %v", seen)
	}
	s.end().want(v1beta1.UpgradeCompleted, newImage, "registry:5000/holdfast:v2 runs everywhere")
	if s.steps() != rolling || strings.Join(s.reported, " ") != rolling {
		t.Errorf("the steps were %s,\nthe events %s", s.steps(), s.reported)
	}
	if st := s.upgrade.Status; st.UpgradedNodes != 3 || st.DesiredNodes != 3 || st.From != oldImage || st.To != newImage || s.cluster.Spec.Images.Holdfast != newImage {
		t.Errorf("the status is %+v; the cluster asks for %s", st, s.cluster.Spec.Images.Holdfast)
	}
}

func TestPlan_OfflineUpgradeStopsAndStartsApplications(t *testing.T) {
	s := newScene(t).offline()
	s.apps = append(s.apps, application{kind: "Deployment", namespace: "team", name: "web", replicas: 3})
	s.until(v1beta1.StepNodes)
	if s.apps[0].replicas+s.apps[1].replicas != 0 || s.apps[0].before != "3" {
		t.Fatalf("applications run while nodes are replaced: %+v", s.apps)
	}
	s.end().want(v1beta1.UpgradeCompleted, newImage, "runs everywhere")
	if s.steps() != offline {
		t.Errorf("the steps were %s", s.steps())
	}
}

func TestPlan_ApplicationThatCannotBeStartedDoesNotKeepTheClusterPaused(t *testing.T) {
	s := newScene(t).offline()
	s.stuck = true
	s.until(v1beta1.StepScaleUp)
	for range 5 {
		if s.step(); s.upgrade.Status.Step != v1beta1.StepScaleUp {
			t.Fatalf("it is not awaited in step %s", s.upgrade.Status.Step)
		}
	}
	s.now = s.now.Add(defaultNodeTimeout + time.Second)
	s.end().want(v1beta1.UpgradeCompleted, newImage, "runs everywhere")
	did := s.upgrade.Status.Steps[len(s.upgrade.Status.Steps)-2].Message
	if !strings.Contains(did, "start StatefulSet team/db, which could not be started") {
		t.Errorf("the step says %q", did)
	}
}

func TestPlan_WhatAStepWaitsForIsNamedAndHasItsTime(t *testing.T) {
	unlisted := func(s *scene) { s.observed.apps.unknown, s.trouble = true, "pods is forbidden" }
	listed := func(s *scene) { s.observed.apps.unknown, s.trouble = false, "" }
	served := func(s *scene) { s.nfs = servers{} }
	stored := func(s *scene) { s.storage = map[string]string{} }
	for name, c := range map[string]struct {
		step        v1beta1.UpgradeStep
		spoil, mend func(*scene)
		again       time.Duration // when it looks again
		says        string
	}{
		// These two without an end: a pause of an administrator may last for longer.
		"a StorageCluster that can be read": {
			v1beta1.StepPauseCluster, func(s *scene) { s.cluster.DecodeError = "spec.pools" },
			func(s *scene) { s.cluster.DecodeError = "" }, 0, "StorageCluster holdfast to be corrected, which cannot be read: ",
		},
		"a pause while the image is pulled": {
			v1beta1.StepPauseCluster, func(s *scene) { s.cluster.Spec.Paused = true },
			func(s *scene) { s.cluster.Spec.Paused = false }, 0, "remove spec.paused",
		},
		"the list of applications to be started": {v1beta1.StepPreflight, unlisted, listed, recheck, "pods is forbidden"},
		"the storage of a node before": {
			v1beta1.StepPreflight, func(s *scene) { s.storage["b"] = "disk gone" }, stored, defaultNodeTimeout, "node b: disk gone",
		},
		"workloads that are not written": {
			v1beta1.StepUpgradeInit, func(s *scene) { s.trouble = "DaemonSet holdfast-node: forbidden" }, func(s *scene) { s.trouble = "" },
			defaultNodeTimeout, "DaemonSet holdfast-node: forbidden",
		},
		"the list of applications to be stopped": {v1beta1.StepScaleDown, unlisted, listed, recheck, "pods is forbidden"},
		"the storage of a node": {
			v1beta1.StepNodes, func(s *scene) { s.step().step().step().storage["b"] = "disk gone" }, stored, defaultNodeTimeout, "node b: disk gone",
		},
		"NFS servers that cannot be looked at": {
			v1beta1.StepNFSServers, func(s *scene) { s.nfs = servers{unknown: true} }, served, recheck, "the NFS servers to be looked at",
		},
		// No watch of the upgrade reports the pods of servers.
		"an NFS server": {
			v1beta1.StepNFSServers, func(s *scene) { s.nfs = updating("shop/files") }, served, recheck, "NFSServer shop/files: its pod to end",
		},
		"the controller": {
			v1beta1.StepController, func(s *scene) { s.step().controller.Ready, s.controller.Waiting = false, "0 of 2 replicas are updated" },
			func(s *scene) { s.controller.Ready = true }, defaultNodeTimeout, "0 of 2 replicas are updated",
		},
		"the controller after its deletion": {
			v1beta1.StepController, func(s *scene) { s.controller = rollout.Workload{Waiting: "Deployment holdfast-controller to be there"} },
			func(s *scene) { s.controller.Ready = true }, defaultNodeTimeout, "Deployment holdfast-controller to be there",
		},
	} {
		waiting := func(t *testing.T) *scene {
			s := newScene(t).offline().until(c.step)
			c.spoil(s)
			for range 5 {
				s.step()
				last := s.upgrade.Status.Steps[len(s.upgrade.Status.Steps)-1]
				if last.Name != c.step || !strings.Contains(last.Message, c.says) || !strings.Contains(s.says(v1beta1.CompleteCondition), c.says) {
					t.Fatalf("it is at %+v", s.upgrade.Status)
				}
				if s.plan.again != c.again || s.plan.roll || s.plan.pause || s.plan.bringNFS != "" {
					t.Errorf("the plan is %+v", s.plan)
				}
			}
			return s
		}
		t.Run(name+", which comes", func(t *testing.T) {
			s := waiting(t)
			c.mend(s)
			s.end().want(v1beta1.UpgradeCompleted, newImage, "runs everywhere")
		})
		t.Run(name+", which does not come", func(t *testing.T) {
			s := waiting(t)
			s.now = s.now.Add(defaultNodeTimeout)
			if s.step(); c.again == 0 {
				if s.upgrade.Status.Step != c.step || s.cluster.Annotations[v1beta1.PausedByAnnotation] != "" {
					t.Errorf("it is in step %s, the pause is of %q", s.upgrade.Status.Step, s.cluster.Annotations[v1beta1.PausedByAnnotation])
				}
				return
			}
			if s.upgrade.Status.Phase == v1beta1.UpgradeRollingBack {
				if s.step(); s.plan.bringNFS != oldImage {
					t.Errorf("NFS servers get %q", s.plan.bringNFS)
				}
			}
			c.mend(s)
			s.end().want(v1beta1.UpgradeFailed, oldImage, fmt.Sprintf("step %s: not done after 10m0s: waiting for %s", c.step, c.says))
		})
	}
}

func TestPlan_WorkloadThatIsDeletedMidwayIsMadeAgain(t *testing.T) {
	s := newScene(t).until(v1beta1.StepNodes)
	s.nodes.image, s.controller = "", rollout.Workload{}
	if s.step(); s.upgrade.Status.Step != v1beta1.StepNodes || s.plan.apply == nil || s.plan.roll {
		t.Fatalf("it goes on: %+v", s.plan)
	}
	s.controller.Ready = true
	s.end().want(v1beta1.UpgradeCompleted, newImage, "runs everywhere")
}

func TestObserve_DeletedDaemonSetIsAwaited(t *testing.T) {
	if n := nodesOf(rollout.World{}); n.none || n.rollout.Done || n.rollout.Waiting == "" {
		t.Errorf("it is taken for %+v", n)
	}
}

func TestPlan_ApplicationThatCannotBeStoppedBlocksAnOfflineUpgrade(t *testing.T) {
	s := newScene(t).offline()
	s.observed.apps.blockers = []string{"DaemonSet team/cache", "pod team/bare"}
	s.end().want(v1beta1.UpgradeFailed, oldImage, "DaemonSet team/cache, pod team/bare")
	if strings.Contains(s.steps(), "UpgradeInit") {
		t.Errorf("the steps were %s", s.steps())
	}
}

func TestPlan_NodeThatDoesNotBecomeReadyIsNamedAndAllIsRolledBack(t *testing.T) {
	s := newScene(t)
	s.upgrade.Spec.NodeTimeout = v1beta1.DurationOf(time.Minute)
	s.broken["b"] = "container holdfast: ImagePullBackOff"
	s.until(v1beta1.StepNodes)
	for range 5 {
		s.step()
	}
	if s.upgrade.Status.Node != "b" || s.upgrade.Status.UpgradedNodes != 1 || s.upgrade.Status.DesiredNodes != 3 || s.plan.again != time.Minute {
		t.Fatalf("it is at %+v", s.upgrade.Status)
	}
	s.now = s.now.Add(time.Minute)
	if s.step(); s.upgrade.Status.Phase != v1beta1.UpgradeRollingBack || !meta.IsStatusConditionTrue(s.upgrade.Status.Conditions, v1beta1.FailedCondition) {
		t.Fatalf("it is at %+v", s.upgrade.Status)
	}
	s.end().want(v1beta1.UpgradeFailed, oldImage, "step Nodes: not done after 1m0s: waiting for pod p of node b to become ready: container holdfast: ImagePullBackOff; registry:5000/holdfast:v1 runs again")
	if s.reported[len(s.reported)-1] != ReasonFailed || s.reported[len(s.reported)-2] != "RollBack" || s.cluster.Spec.Images.Holdfast != "" {
		t.Errorf("the events are %v; the cluster asks for %s", s.reported, s.cluster.Spec.Images.Holdfast)
	}
}

func TestPlan_StorageOfANodeIsAwaitedInTheRollbackToo(t *testing.T) {
	s := newScene(t).until(v1beta1.StepNodes)
	s.storage["c"] = "its storage is not ready: disk gone"
	s.step().step().step().step()
	if st := s.upgrade.Status; st.Node != "c" || st.UpgradedNodes != 3 || st.DesiredNodes != 3 {
		t.Fatalf("with all pods replaced, and the storage of node c not ready, it is at %+v", st)
	}
	s.now = s.now.Add(defaultNodeTimeout)
	for range 7 {
		s.step()
	}
	if st := s.upgrade.Status; st.Phase != v1beta1.UpgradeRollingBack || s.pods["c"] != oldImage || st.Node != "c" {
		t.Fatalf("with all pods taken back, and the storage of node c not ready, it is at %+v", st)
	}
	s.storage = nil
	s.end().want(v1beta1.UpgradeFailed, oldImage, "node c: its storage is not ready: disk gone")
}

func TestPlan_EachNodeHasItsOwnTimeout(t *testing.T) {
	s := newScene(t).until(v1beta1.StepNodes)
	for range 3 {
		s.now = s.now.Add(9 * time.Minute)
		s.step()
	}
	s.end().want(v1beta1.UpgradeCompleted, newImage, "")
}

func TestPlan_WhatFailsInTurnsIsRolledBack(t *testing.T) {
	for step, fail := range map[v1beta1.UpgradeStep]func(s *scene, turn int){
		v1beta1.StepNodes:      func(s *scene, turn int) { s.broken = map[string]string{[]string{"a", "b"}[turn]: "it crashes"} },
		v1beta1.StepNFSServers: func(s *scene, turn int) { s.nfs = updating([]string{"shop/a", "shop/b"}[turn]) },
	} {
		t.Run(string(step), func(t *testing.T) {
			s := newScene(t).until(v1beta1.StepNodes).step().step().step()
			if step == v1beta1.StepNFSServers {
				s.nfs = updating("shop/a")
				s.until(step).step()
			}
			for i := range 6 {
				fail(s, i%2)
				s.now = s.now.Add(defaultNodeTimeout / 2)
				if s.step(); s.upgrade.Status.Step == v1beta1.StepRollBack {
					return
				}
			}
			t.Errorf("it goes on: %+v", s.upgrade.Status)
		})
	}
}

func TestPlan_WithoutRollbackFinishedStepsStay(t *testing.T) {
	s := newScene(t)
	s.upgrade.Spec.Rollback = new(false)
	s.broken["b"] = "it crashes"
	s.until(v1beta1.StepNodes).step().step().step()
	s.now = s.now.Add(defaultNodeTimeout)
	s.end()
	if s.pods["a"] != newImage || s.pods["b"] != newImage || s.pods["c"] != oldImage {
		t.Errorf("the nodes run %v", s.pods)
	}
	if s.cluster.Spec.Paused || s.cluster.Spec.Images.Holdfast != newImage || s.upgrade.Status.Phase != v1beta1.UpgradeFailed {
		t.Errorf("the cluster is %+v, the upgrade %+v", s.cluster.Spec, s.upgrade.Status)
	}
}

func TestPlan_RollbackThatDoesNotEndIsLeftToTheCluster(t *testing.T) {
	s := newScene(t).offline()
	s.broken["b"] = "it crashes"
	s.until(v1beta1.StepNodes).step().step().step()
	s.now = s.now.Add(defaultNodeTimeout)
	s.step()
	s.controller.Ready, s.controller.Waiting = false, "nothing is ready"
	s.step()
	s.now = s.now.Add(2 * defaultNodeTimeout)
	s.end()
	m := s.says(v1beta1.FailedCondition)
	if s.upgrade.Status.Phase != v1beta1.UpgradeFailed || !strings.Contains(m, "itself, since not done after 10m0s") || !strings.Contains(m, "step Nodes: ") {
		t.Errorf("it says %q", m)
	}
	if s.cluster.Spec.Paused || s.cluster.Spec.Images.Holdfast != oldImage || s.apps[0].replicas != 3 {
		t.Errorf("the cluster is %+v, the applications %+v", s.cluster.Spec, s.apps)
	}
}

// pulling is a scene whose metadata on disk has version 2, and that waits for the images of nodes, NFS servers and Ceph pools.
func pulling(t *testing.T) *scene {
	t.Helper()
	s := newScene(t)
	s.metadata, s.ceph, s.nfs.image, s.nfs.nodes = 2, "holdfast/ceph:v2", "holdfast/nfs:v2", []string{"b"}
	return s.until(v1beta1.StepPullImage).step()
}

// pulled is the end of a job that asks an image for its version.
func pulled(log string) v1beta1.NodeJobStatus {
	return v1beta1.NodeJobStatus{Phase: v1beta1.JobCompleted, Nodes: []v1beta1.NodeResult{{Name: "b", Log: log}}}
}

const (
	reads1  = `{"version":"v0","metadata":{"writes":1,"reads":1}}`
	reads2  = `{"version":"v2","metadata":{"writes":2,"reads":2}}`
	writes3 = `{"version":"v3","metadata":{"writes":3,"reads":3}}`
)

func TestPlan_AllImagesArePulledBeforeTheClusterIsPaused(t *testing.T) {
	s := pulling(t)
	for _, job := range []*v1beta1.NodeJob{s.job, s.nfsJob, s.cephJob} {
		if s.step(); s.upgrade.Status.Step != v1beta1.StepPullImage {
			t.Errorf("it does not wait for %s, but is at %s", job.Name, s.upgrade.Status.Step)
		}
		job.Status = pulled(reads2)
	}
	did := s.step().upgrade.Status.Steps[0].Message
	for _, image := range []string{"holdfast/nfs:v2", "holdfast/ceph:v2"} {
		if s.upgrade.Status.Step != v1beta1.StepPauseCluster || !strings.Contains(did, image) {
			t.Errorf("it is at %s: %+v", s.upgrade.Status.Step, s.upgrade.Status.Steps)
		}
	}
}

func TestPlan_ImageThatIsMissingOrReadsOtherMetadataIsRefusedBeforeAnyChange(t *testing.T) {
	ok, missing := pulled(reads2), v1beta1.NodeJobStatus{Phase: v1beta1.JobFailed, Conditions: []metav1.Condition{
		{Type: v1beta1.CompleteCondition, Message: "b: image x cannot be pulled"},
	}}
	for name, c := range map[string]struct {
		job, nfs, ceph v1beta1.NodeJobStatus
		want           string
	}{
		"it reads less":           {pulled(reads1), ok, ok, "holdfast:v2 reads metadata up to version 1, and the metadata on disk has version 2"},
		"it does not say":         {pulled(`{"version":"v0"}`), ok, ok, "does not report which metadata it reads"},
		"it is something else":    {pulled("Welcome!\n"), ok, ok, `does not report which metadata it reads: it wrote "Welcome!"`},
		"it is missing":           {missing, ok, ok, "b: image x cannot be pulled"},
		"there is no way back":    {pulled(writes3), ok, ok, "writes metadata of version 3, and registry:5000/holdfast:v1 reads it up to version 2"},
		"NFS servers read less":   {ok, pulled(reads1), ok, "holdfast/nfs:v2 reads metadata up to version 1, and the metadata on disk has"},
		"NFS servers do not say":  {ok, pulled("nfs 2.0"), ok, "node b: holdfast/nfs:v2 does not report which metadata it reads"},
		"that of NFS is missing":  {ok, missing, ok, "b: image x cannot be pulled"},
		"Ceph pools do not say":   {ok, ok, pulled(""), "holdfast/ceph:v2 does not report which metadata it reads"},
		"that of Ceph is missing": {ok, ok, missing, "b: image x cannot be pulled"},
	} {
		t.Run(name, func(t *testing.T) {
			s := pulling(t)
			before := s.cluster.DeepCopy()
			s.job.Status, s.nfsJob.Status, s.cephJob.Status = c.job, c.nfs, c.ceph
			for range 20 {
				if s.step(); s.plan.pause || s.plan.unpause || s.plan.apply != nil || !equality.Semantic.DeepEqual(s.cluster, before) {
					t.Fatalf("the cluster is changed: %+v", s.plan)
				}
			}
			s.want(v1beta1.UpgradeFailed, oldImage, c.want)
			if s.steps() != "PullImage" {
				t.Errorf("the steps were %s", s.steps())
			}
		})
	}
	s := newScene(t)
	s.log, s.upgrade.Spec.Rollback = writes3, new(false)
	s.end().want(v1beta1.UpgradeCompleted, newImage, "runs everywhere")
}

func TestPlan_ImageOfCephPoolsFollowsThatOfHoldfast(t *testing.T) {
	inCeph := v1beta1.PoolSpec{Name: "ceph", Engine: v1beta1.EngineRBD, Ceph: &v1beta1.CephSpec{}}
	for name, test := range map[string]struct {
		pools []v1beta1.PoolSpec
		image v1beta1.Image // in the spec
		to    v1beta1.Image
		want  v1beta1.Image
	}{
		"there is a pool":         {[]v1beta1.PoolSpec{{Name: "default"}, inCeph}, "", newImage, "registry:5000/ceph:v2"},
		"there is none":           {[]v1beta1.PoolSpec{{Name: "default"}}, "", newImage, ""},
		"it has an image already": {[]v1beta1.PoolSpec{inCeph}, "", oldImage, ""},
		"the image is pinned":     {[]v1beta1.PoolSpec{inCeph}, "mirror/ceph:v1", newImage, ""},
	} {
		cluster := &v1beta1.StorageCluster{Spec: v1beta1.StorageClusterSpec{Pools: test.pools, Images: v1beta1.Images{Holdfast: oldImage, Ceph: test.image}}}
		if got := new(Controller).cephImage(cluster, test.to); got != test.want {
			t.Errorf("%s: %q is pulled, not %q", name, got, test.want)
		}
	}
}

// The StorageCluster was changed, and is paused before its own loop has replaced all node pods for that.
func TestPreflight_FinishesTheRolloutThatThePauseHasStopped(t *testing.T) {
	s := newScene(t).until(v1beta1.StepPreflight)
	s.pods["b"], s.pods["c"] = "with other arguments", "with other arguments"
	var replaced []string
	for range len(s.pods) {
		if s.step(); s.plan.roll {
			replaced = append(replaced, s.upgrade.Status.Node)
		}
		s.now = s.now.Add(defaultNodeTimeout * 3 / 4) // each node has all of its time
	}
	if !slices.Equal(replaced, []string{"b", "c"}) {
		t.Errorf("replaced were %v", replaced)
	}
	s.end().want(v1beta1.UpgradeCompleted, newImage, "runs everywhere")
}

func TestPlan_RunningImageIsPulledAtOnce(t *testing.T) {
	s := newScene(t)
	s.upgrade.Spec = v1beta1.StorageUpgradeSpec{Image: oldImage}
	s.end().want(v1beta1.UpgradeCompleted, oldImage, "runs already")
	if s.steps() != "UpgradeComplete" || s.job != nil {
		t.Errorf("the steps were %s", s.steps())
	}
}

func TestPlan_ImageOfARolloutThatHasNotEndedIsNotSaidToRun(t *testing.T) {
	for name, c := range map[string]struct {
		change func(*scene)
		want   string
	}{
		"a node runs another":       {func(s *scene) { s.pods["c"] = newImage }, "it waits for the pod of node c"},
		"a node is not ready":       {func(s *scene) { s.storage["b"] = "disk gone" }, "node b: disk gone"},
		"the DaemonSet is old":      {func(s *scene) { s.nodes.image = newImage }, "the DaemonSet to name " + string(oldImage)},
		"the controller is old":     {func(s *scene) { s.controller.Image = newImage }, "the controller to be asked to run"},
		"the controller is not all": {func(s *scene) { s.controller.Ready, s.controller.Waiting = false, "1 of 2 replicas" }, "1 of 2 replicas"},
	} {
		s := newScene(t)
		s.upgrade.Spec = v1beta1.StorageUpgradeSpec{Image: oldImage}
		c.change(s)
		s.end()
		if m := s.says(v1beta1.FailedCondition); s.upgrade.Status.Phase != v1beta1.UpgradeFailed || !strings.Contains(m, c.want) || s.job != nil {
			t.Errorf("%s: it is %+v", name, s.upgrade.Status)
		}
	}
}

func TestPlan_UpgradeWaitsItsTurn(t *testing.T) {
	for name, c := range map[string]struct {
		change func(*scene)
		want   string
	}{
		"another goes first":  {func(s *scene) { s.other = "first" }, "upgrade first runs first"},
		"there is no cluster": {func(s *scene) { s.cluster = nil }, "there is no StorageCluster"},
		"the cluster goes":    {func(s *scene) { s.cluster.DeletionTimestamp = &metav1.Time{Time: begun} }, "is being deleted"},
		"the user has paused": {func(s *scene) { s.cluster.Spec.Paused = true }, "remove spec.paused"},
		"it cannot be read":   {func(s *scene) { s.cluster.DecodeError = "spec.pools" }, "StorageCluster holdfast cannot be read: "},
		"another has it still": {func(s *scene) {
			s.cluster.Spec.Paused, s.cluster.Annotations = true, map[string]string{v1beta1.PausedByAnnotation: "first"}
		}, "paused by upgrade first"},
	} {
		t.Run(name, func(t *testing.T) {
			s := newScene(t)
			cluster := s.cluster.DeepCopy()
			c.change(s)
			s.step().step().step()
			if s.upgrade.Status.Phase != v1beta1.UpgradeWaiting || !strings.Contains(s.says(v1beta1.CompleteCondition), c.want) || s.job != nil {
				t.Fatalf("it is %+v", s.upgrade.Status)
			}
			s.other, s.cluster = "", cluster
			s.end().want(v1beta1.UpgradeCompleted, newImage, "runs everywhere")
		})
	}
}

func TestPlan_UpgradeDeletedMidwayLeavesTheClusterAsBefore(t *testing.T) {
	for step := range strings.FieldsSeq(strings.TrimSuffix(offline, " UpgradeComplete")) {
		for _, rollback := range []bool{true, false} {
			t.Run(fmt.Sprintf("%s %v", step, rollback), func(t *testing.T) {
				s := newScene(t).offline()
				s.upgrade.Spec.Rollback = &rollback
				s.until(v1beta1.UpgradeStep(step)).step() // in the middle of it
				s.upgrade.DeletionTimestamp = &metav1.Time{Time: s.now}
				s.end().want(v1beta1.UpgradeFailed, oldImage, "it was deleted")
				if s.cluster.Spec.Images.Holdfast != "" {
					t.Errorf("the cluster is %+v", s.cluster.Spec)
				}
			})
		}
	}
}

func TestPlan_UpgradeDeletedAtItsEndIsCompleted(t *testing.T) {
	s := newScene(t).until(v1beta1.StepUpgradeComplete)
	s.upgrade.DeletionTimestamp = &metav1.Time{Time: s.now}
	s.end().want(v1beta1.UpgradeCompleted, newImage, "runs everywhere")
}

func TestPlan_UpgradeThatNeverBeganIsDeletedAtOnce(t *testing.T) {
	s := newScene(t)
	s.other = "first"
	s.step().step()
	s.upgrade.DeletionTimestamp = &metav1.Time{Time: s.now}
	if s.step(); len(s.upgrade.Finalizers) != 0 || s.job != nil {
		t.Errorf("it is %+v", s.upgrade)
	}
}

func TestPlan_ClusterDeletedMidwayEndsTheUpgradeAndIsNotLeftPaused(t *testing.T) {
	for want, remove := range map[string]func(s *scene){
		"is gone":          func(s *scene) { s.cluster = nil },
		"is being deleted": func(s *scene) { s.cluster.DeletionTimestamp = &metav1.Time{Time: s.now} },
	} {
		s := newScene(t).offline().until(v1beta1.StepNodes).step()
		remove(s)
		s.end()
		m := s.says(v1beta1.FailedCondition)
		if s.upgrade.Status.Phase != v1beta1.UpgradeFailed || !strings.Contains(m, want) || len(s.upgrade.Finalizers) > 0 {
			t.Errorf("it is %+v", s.upgrade)
		}
		if s.apps[0].replicas != 3 || s.cluster != nil && s.cluster.Spec.Paused {
			t.Errorf("the applications are %+v, the cluster %+v", s.apps, s.cluster)
		}
	}
}

func TestPlan_ManualUnpauseMidwayIsOverruled(t *testing.T) {
	s := newScene(t).until(v1beta1.StepNodes)
	s.cluster.Spec.Paused, s.cluster.Annotations = false, nil
	if s.step(); !s.cluster.Spec.Paused {
		t.Error("the cluster's own loop is let in")
	}
	s.end().want(v1beta1.UpgradeCompleted, newImage, "")
}

func TestVersion_IsAnotherTagOfTheImage(t *testing.T) {
	for name, c := range map[string]struct {
		current v1beta1.Image
		want    v1beta1.Image
	}{
		"with a tag":             {"holdfast/holdfast:v1", "holdfast/holdfast:v2"},
		"without a tag":          {"holdfast/holdfast", "holdfast/holdfast:v2"},
		"a port and a tag":       {"registry:5000/holdfast:v1", "registry:5000/holdfast:v2"},
		"a port without a tag":   {"registry:5000/holdfast", "registry:5000/holdfast:v2"},
		"a digest":               {"holdfast@sha256:0123", "holdfast:v2"},
		"a tag and a digest":     {"registry:5000/holdfast:v1@sha256:0123", "registry:5000/holdfast:v2"},
		"one that is not known ": {"", ""},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := target(&v1beta1.StorageUpgradeSpec{Version: "v2"}, c.current)
			if got != c.want || (err == nil) != (c.want != "") {
				t.Errorf("got %s, %v, want %s", got, err, c.want)
			}
		})
	}
	if got, err := target(&v1beta1.StorageUpgradeSpec{Image: "x"}, oldImage); got != "x" || err != nil {
		t.Errorf("an image: %s, %v", got, err)
	}
	if _, err := target(&v1beta1.StorageUpgradeSpec{}, oldImage); err == nil {
		t.Error("nothing to bring was taken")
	}
}

func TestVersion_IsFoundInALogWithOtherLines(t *testing.T) {
	v, err := parseVersion("warning: x\n{\"level\":\"info\"}\n" + `{"version":"v2","metadata":{"writes":2,"reads":3}}` + "\nbye\n")
	if err != nil || v.Version != "v2" || v.Metadata.Writes != 2 || v.Metadata.Reads != 3 {
		t.Errorf("got %+v, %v", v, err)
	}
}

// updating is what is observed while a server does not serve with the new image yet.
func updating(server string) servers {
	return servers{next: server, waiting: "NFSServer " + server + ": its pod to end"}
}

func TestPlan_EachNFSServerHasItsOwnTimeout(t *testing.T) {
	s := newScene(t)
	s.nfs = updating("shop/a")
	s.until(v1beta1.StepNFSServers).step()
	for _, server := range []string{"shop/b", "shop/c", "team/a"} {
		s.now = s.now.Add(9 * time.Minute)
		s.nfs = updating(server)
		if s.step(); s.upgrade.Status.Node != v1beta1.NodeOfServer(server) || !s.upgrade.Status.NodeStartTime.Time.Equal(s.now) {
			t.Fatalf("with NFSServer %s next, it is at %+v", server, s.upgrade.Status)
		}
	}
	s.nfs = servers{}
	s.end().want(v1beta1.UpgradeCompleted, newImage, "")
}

func TestPlan_NFSServersThatAreNotAwaitedAreNamed(t *testing.T) {
	s := newScene(t)
	s.nfs.unawaited = []string{"shop/a", "team/b"}
	s.end().want(v1beta1.UpgradeCompleted, newImage, "")
	if m := s.upgrade.Status.Steps[5].Message; !strings.Contains(m, "did not serve when the upgrade began") || !strings.HasSuffix(m, ": shop/a, team/b") {
		t.Errorf("it says %q", m)
	}
}
