package cluster

import (
	"net/http"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/holdfast-storage/holdfast/test/rig/check"
	"github.com/holdfast-storage/holdfast/test/rig/wait"
)

// schemaOf notes by which FlowSchema the last request was taken.
type schemaOf struct {
	next http.RoundTripper
	uid  string
}

func (s *schemaOf) RoundTrip(q *http.Request) (*http.Response, error) {
	answer, err := s.next.RoundTrip(q)
	if err == nil {
		s.uid = answer.Header.Get("X-Kubernetes-PF-FlowSchema-UID")
	}
	return answer, err
}

func TestPriority_IsForTheAccountsOfHoldfastAlone(t *testing.T) {
	r := newRig(t).start()
	r.create("holdfast", nil)
	r.reconciled("holdfast")
	own := check.Got(r.theirs.FlowcontrolV1().FlowSchemas().Get(t.Context(), "holdfast", metav1.GetOptions{}))(t)
	taken := func(space, account string) string {
		config := rest.CopyConfig(r.config)
		config.Impersonate = rest.ImpersonationConfig{
			UserName: "system:serviceaccount:" + space + ":" + account,
			Groups:   []string{"system:serviceaccounts", "system:serviceaccounts:" + space, "system:authenticated"},
		}
		var s *schemaOf
		config.Wrap(func(next http.RoundTripper) http.RoundTripper { s = &schemaOf{next: next}; return s })
		_, _ = kubernetes.NewForConfigOrDie(config).CoordinationV1().Leases(space).List(t.Context(), metav1.ListOptions{}) // it may be forbidden
		return s.uid
	}
	wait.Until(r, "the requests of the nodes being taken by it", func() bool { return taken(namespace, "holdfast-node") == string(own.UID) })
	if uid := taken("team-a", "holdfast-node"); uid == string(own.UID) || uid == "" {
		t.Errorf("those of a tenant are taken by %q", uid)
	}
}
