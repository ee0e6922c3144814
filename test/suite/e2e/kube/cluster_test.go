package kube

import (
	"strings"
	"testing"
	"testing/synctest"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/holdfast-storage/holdfast/test/rig/check"
)

func TestCluster_EndOfARunNamesRemainingNamespaces(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, client := imitation(t)
		for name, run := range map[string]string{"stays": c.run, "of-others": "another"} {
			namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{runLabel: run}}}
			check.OK(t, client.Tracker().Add(namespace))
		}
		err := c.Close()
		if err == nil || !strings.Contains(err.Error(), "namespace stays") || strings.Contains(err.Error(), "of-others") {
			t.Errorf("error %v", err)
		}
		check.OK(t, client.CoreV1().Namespaces().Delete(t.Context(), "stays", metav1.DeleteOptions{}))
		if err := c.Close(); err != nil {
			t.Errorf("error %v", err)
		}
	})
}
