package nfsserver

import (
	"context"
	"net/netip"
	"strconv"
	"strings"

	core "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"

	v1 "github.com/holdfast-storage/holdfast/api/v1"
	"github.com/holdfast-storage/holdfast/deploy"
	"github.com/holdfast-storage/holdfast/kube/apply"
	"github.com/holdfast-storage/holdfast/operator/render"
)

// accountPolicy binds the accounts of servers to what is their own.
const accountPolicy = "holdfast-nfs-account"

// limitsOf are the policies beside the rights of servers, which are reached at these addresses, by NAMESPACE/NAME.
func limitsOf(servers []*v1.NFSServer, addresses map[string]string, namespace string) (finished []*unstructured.Unstructured, err error) {
	all, err := render.Policies(deploy.NFSAccountPolicies, namespace)
	if err != nil {
		return nil, err
	}
	var known []string
	for _, s := range inOrder(servers) {
		key := keyOf(s).String()
		if _, err := netip.ParseAddr(addresses[key]); err == nil { // headless, or not there yet
			known = append(known, strconv.Quote(key)+": "+strconv.Quote(addresses[key]))
		}
	}
	for _, o := range all {
		if o.GetName() == accountPolicy && o.GetKind() == "ValidatingAdmissionPolicy" {
			if err := render.SetVariable(o, "servers", "{"+strings.Join(known, ", ")+"}"); err != nil {
				return nil, err
			}
		}
		u, err := shared(o)
		if err != nil {
			return nil, err
		}
		finished = append(finished, u)
	}
	return finished, nil
}

// limits are those of the servers, none where the API server knows no policies.
func (r *Controller) limits(servers []*v1.NFSServer) ([]*unstructured.Unstructured, error) {
	if !render.HasPolicies(r.Owned.Has) {
		return nil, nil
	}
	addresses := map[string]string{}
	for _, s := range servers {
		addresses[keyOf(s).String()] = r.serviceAddress(s)
	}
	return limitsOf(servers, addresses, r.Namespace)
}

// serviceAddress is what the API server gave to the Service of a server. What a status says is no proof.
func (r *Controller) serviceAddress(s *v1.NFSServer) string {
	live := r.Servers.Get(refTo(s, "", "Service"))
	if live == nil {
		return ""
	}
	service := &core.Service{}
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(live.Object, service); err != nil {
		return ""
	}
	return service.Spec.ClusterIP
}

// applyLimits comes before every right is given: without them none is.
func (r *Controller) applyLimits(ctx context.Context, servers []*v1.NFSServer) apply.Outcome {
	objects, err := r.limits(servers)
	if err != nil {
		return apply.Outcome{Failures: []apply.Failure{{Err: err}}}
	}
	return r.Owned.Apply(ctx, objects)
}

// limitTo tells the limits the address of a server, which a cache may not have yet.
func (r *Controller) limitTo(ctx context.Context, one *v1.NFSServer) apply.Outcome {
	r.rights.Lock()
	defer r.rights.Unlock()
	return r.applyLimits(ctx, append(r.held(keyOf(one)), one))
}
