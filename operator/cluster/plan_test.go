package cluster

import (
	"encoding/json"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/holdfast-storage/holdfast/api/v1beta1"
	"github.com/holdfast-storage/holdfast/kube"
	"github.com/holdfast-storage/holdfast/kube/apply"
)

func TestPlan_TaskOfAStorageCluster(t *testing.T) {
	cluster := func(uid types.UID, change ...func(*v1beta1.StorageCluster)) *v1beta1.StorageCluster {
		c := &v1beta1.StorageCluster{ObjectMeta: metav1.ObjectMeta{Name: "holdfast", UID: uid}}
		for _, f := range change {
			f(c)
		}
		return c
	}
	deleted := func(c *v1beta1.StorageCluster) { c.DeletionTimestamp = new(metav1.Now()) }
	paused := func(c *v1beta1.StorageCluster) { c.Spec.Paused = true }
	unreadable := func(c *v1beta1.StorageCluster) {
		if err := json.Unmarshal([]byte(`{"metadata":{"name":"holdfast","uid":"`+string(c.UID)+`"},"spec":{"paused":"x"}}`), c); err != nil || c.Unreadable() == nil {
			t.Fatalf("it can be read: %v", err)
		}
	}
	for name, test := range map[string]struct {
		c, served *v1beta1.StorageCluster
		want      task
	}{
		"nothing is served":               {cluster("a"), nil, taskWait},
		"it is served":                    {cluster("a"), cluster("a"), taskMaintain},
		"paused":                          {cluster("a", paused), cluster("a"), taskReport},
		"deleted":                         {cluster("a", deleted), cluster("a"), taskRemove},
		"deleted while paused":            {cluster("a", deleted, paused), cluster("a"), taskRemove},
		"beside another":                  {cluster("b"), cluster("a"), taskRefuse},
		"beside another, paused":          {cluster("b", paused), cluster("a"), taskRefuse},
		"deleted, and another is served":  {cluster("b", deleted), cluster("a"), taskHandOver},
		"cannot be decoded":               {cluster("a", unreadable), cluster("a"), taskKeepLast},
		"deleted, and cannot be decoded":  {cluster("a", unreadable, deleted), cluster("a"), taskKeepLast},
		"unreadable, another, and leaves": {cluster("a", unreadable, deleted), cluster("b"), taskHandOver},
	} {
		if got := taskFor(test.c, test.served); got != test.want {
			t.Errorf("%s: task %d, want %d", name, got, test.want)
		}
	}
}

func TestPlan_WhatFollowsOnAnApply(t *testing.T) {
	p := healthy(1).plan(false)
	if !p.replacePods || p.attacherRuns || !p.releaseFinalizer || p.again != 0 {
		t.Errorf("of a healthy cluster: %+v", p)
	}
	if p := healthy(1).plan(true); p.releaseFinalizer || p.again != kube.RetryRefused {
		t.Errorf("something could not be applied: %+v", p)
	}
	for name, change := range map[string]func(*situation){
		"the attacher is desired":           func(s *situation) { cephPools(&s.cluster.Spec) },
		"the controller is not ready":       func(s *situation) { s.controllers[0].Ready = false },
		"the workload of before still runs": func(s *situation) { s.controllers = append(s.controllers, workload{kind: "StatefulSet"}) },
		"there is no workload":              func(s *situation) { s.controllers = nil },
		"the spec cannot be rendered":       func(s *situation) { s.invalid = errNotYet },
	} {
		if p := healthy(1).with(change).plan(false); p.releaseFinalizer {
			t.Errorf("%s: finalizers are released", name)
		}
	}
	ending := func(s *situation) { s.world.DaemonSet.DeletionTimestamp = new(metav1.Now()) }
	if p := healthy(1).with(ending).plan(false); p.replacePods {
		t.Error("pods of a DaemonSet that is being deleted are replaced")
	}
}

func TestPlan_WhatIsNotPruned(t *testing.T) {
	object := func(kind, name string) *unstructured.Unstructured {
		o := &unstructured.Unstructured{}
		o.SetGroupVersionKind(schema.GroupVersionKind{Group: "apps", Version: "v1", Kind: kind})
		o.SetNamespace(namespace)
		o.SetName(name)
		return o
	}
	desired, old, own := object("DaemonSet", v1beta1.NodeName), object("DaemonSet", "old"), object("StatefulSet", v1beta1.ControllerName)
	failed := []apply.Failure{{Ref: apply.RefOf(desired)}}
	late := func(s *situation) { s.controllers[0].Ready = false }
	for name, test := range map[string]struct {
		s        *situation
		failures []apply.Failure
		o        *unstructured.Unstructured
		want     bool
	}{
		"desired":              {healthy(1), nil, desired, true},
		"not desired any more": {healthy(1), nil, old, false},
		"another of its kind could not be applied":   {healthy(1), failed, old, true},
		"the controller's, and the new one is ready": {healthy(1), nil, own, false},
		"the controller's, and the new one is not":   {healthy(1).with(late), nil, own, true},
		"not desired, and the controller is late":    {healthy(1).with(late), nil, old, false},
	} {
		if keep := test.s.keeps([]*unstructured.Unstructured{desired}, test.failures); keep(test.o) != test.want {
			t.Errorf("%s: kept is %v", name, !test.want)
		}
	}
}
