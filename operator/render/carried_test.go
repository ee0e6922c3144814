package render

import (
	"strings"
	"testing"

	core "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/holdfast-storage/holdfast/api/v1beta1"
	"github.com/holdfast-storage/holdfast/test/rig/check"
)

func TestReadCarried_WhatWasRenderedIsRead(t *testing.T) {
	c := ask(nil).Cluster
	c.Spec.Pools = []v1beta1.PoolSpec{{Name: "fast", Path: "/srv/fast", Engine: v1beta1.EngineDirectory}}
	c.Spec.NodeSelectorTerms = []core.NodeSelectorTerm{{MatchExpressions: []core.NodeSelectorRequirement{{Key: "x", Operator: core.NodeSelectorOpExists}}}}
	c.Spec.StorageClasses = []v1beta1.StorageClassSpec{{Name: "fast", Pool: "fast"}}
	objects := check.Got(Objects(Input{Cluster: c, Namespace: "holdfast-system"}))(t)
	find := func(kind string) *unstructured.Unstructured {
		for _, o := range objects {
			if o.GetKind() == kind && o.GetName() == "holdfast-node" {
				return o
			}
		}
		return nil
	}
	config, nodes := find("ConfigMap"), find("DaemonSet")
	got := ReadCarried(config, nodes)
	if got == nil || len(got.Pools) != 1 || got.Pools[0].Path != "/srv/fast" || len(got.NodeSelectorTerms) != 1 {
		t.Fatalf("it reads %+v", got)
	}
	if ReadCarried(nil, nodes) != nil || ReadCarried(config, nil) != nil {
		t.Error("it reads what is not there")
	}
	check.OK(t, unstructured.SetNestedField(config.Object, `{"pools":[{"name":"fast","path":"/tampered"}]}`, "data", "node.json"))
	if got := ReadCarried(config, nodes); got != nil {
		t.Errorf("a change by hand is read as %+v", got)
	}
}

func TestPolicies_NameTheNamespaceOfHoldfast(t *testing.T) {
	objects := check.Got(Objects(Input{Cluster: ask(nil).Cluster, Namespace: "elsewhere", Has: everyKind}))(t)
	names := 0
	for _, o := range objects {
		if o.GetKind() != "ValidatingAdmissionPolicy" {
			continue
		}
		text := check.Got(o.MarshalJSON())(t)
		if strings.Contains(string(text), "holdfast-system") {
			t.Errorf("%s names the namespace of the manifests", o.GetName())
		}
		if strings.Contains(string(text), "system:serviceaccount:elsewhere:holdfast-controller") {
			names++
		}
	}
	if names != 9 {
		t.Errorf("%d policies name the controller", names)
	}
}
