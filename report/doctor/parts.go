package doctor

import (
	"cmp"
	"crypto/tls"
	"fmt"
	"strings"
	"time"

	core "k8s.io/api/core/v1"

	v1 "github.com/holdfast-storage/holdfast/api/v1"
	"github.com/holdfast-storage/holdfast/kube"
	"github.com/holdfast-storage/holdfast/report/status"
)

func lookAtCluster(f *Facts) (found []Finding) {
	c := f.served()
	if c == nil {
		return []Finding{problem("", "kubectl apply -f deploy/install.yaml makes one; an empty spec will do.", "there is no StorageCluster, so nothing is installed")}
	}
	for i := range f.Clusters {
		if other := &f.Clusters[i]; other.UID != c.UID || other.Name != c.Name {
			found = append(found, warn("StorageCluster "+other.Name, "kubectl delete storagecluster "+other.Name, "it has no effect, since %s is served", c.Name))
		}
	}
	object, said := "StorageCluster "+c.Name, status.Message(c.Status.Conditions)
	switch c.Status.Phase {
	case v1.ClusterRunning, v1.ClusterUpgrading:
	case v1.ClusterPaused:
		found = append(found, note(object, "Set spec.pause to false to have Holdfast look after itself again.", "it is paused: nothing is repaired, and changes have no effect"))
	case "":
		found = append(found, problem(object, "See whether a controller runs.", "no controller has looked at it"))
	case v1.ClusterTerminating:
		found = append(found, problem(object, "Delete the claims that use the volumes, or set spec.deletionPolicy to Orphan to keep volumes and data.", "it is being removed: %s", cmp.Or(said, "it waits")))
	default:
		found = append(found, problem(object, "", "it is %s: %s", c.Status.Phase, cmp.Or(said, "its conditions say no more")))
	}
	if c.Status.Phase != "" && c.Status.ObservedGeneration < c.Generation {
		found = append(found, problem(object, "See whether a controller runs.", "no controller has looked at its last change"))
	}
	return found
}

func lookAtServers(f *Facts) (found []Finding) {
	for i := range f.Servers {
		s := &f.Servers[i]
		object, said := "NFSServer "+s.Namespace+"/"+s.Name, cmp.Or(status.Message(s.Status.Conditions), "its conditions say no more")
		see := fmt.Sprintf("See kubectl -n %s describe nfsserver %s.", s.Namespace, s.Name)
		switch {
		case s.Status.Phase == "" || s.Status.ObservedGeneration < s.Generation:
			found = append(found, problem(object, "See whether a controller runs.", "no controller has looked at its last change"))
		case s.Status.Phase == v1.NFSTerminating:
			found = append(found, warn(object, "Delete the claims that use its volumes.", "it is being removed: %s", said))
		case s.Status.Phase == v1.NFSPending:
			found = append(found, warn(object, see, "it has not served yet: %s", said))
		case s.Status.Phase == v1.NFSDegraded:
			found = append(found, problem(object, see, "%s", said))
		}
	}
	return found
}

// podSecurity is the label that says which pods a namespace takes.
const podSecurity = "pod-security.kubernetes.io/enforce"

func lookAtNamespace(f *Facts) []Finding {
	object := "Namespace " + f.Namespace
	if f.Home == nil {
		return []Finding{problem(object, "kubectl apply -f deploy/install.yaml, or say with --namespace where Holdfast is.", "it does not exist")}
	}
	do := fmt.Sprintf("kubectl label --overwrite namespace %s %s=privileged", f.Namespace, podSecurity)
	level, labelled := f.Home.Labels[podSecurity]
	for i := range f.Warnings {
		e := &f.Warnings[i]
		if e.Namespace == f.Namespace && e.Reason == "FailedCreate" && strings.Contains(e.Message, "PodSecurity") && level != "privileged" {
			return []Finding{problem(object, do, "pods of Holdfast are forbidden here: %s", e.Message)}
		}
	}
	switch {
	case level == "privileged":
		return nil
	case labelled:
		return []Finding{problem(object, do, "its label %s is %q: node pods, which mount file systems for their node, cannot start", podSecurity, level)}
	}
	return []Finding{warn(object, do, "it has no label %s: where the cluster enforces a default, node pods cannot start", podSecurity)}
}

func lookAtController(f *Facts) (found []Finding) {
	ready, all := 0, f.podsOfPart(v1.ControllerComponent)
	for _, p := range all {
		if why := notReady(f, p); why == "" {
			ready++
		} else {
			found = append(found, warn("Pod "+p.Name, logs(p), "%s", why))
		}
	}
	if ready > 0 {
		return found
	}
	for i := range found {
		found[i].Level = Problem
	}
	if len(all) == 0 {
		found = append(found, problem("", fmt.Sprintf("See kubectl -n %s describe deployment holdfast-controller, or apply deploy/install.yaml.", f.Namespace),
			"there is no pod of the controller in namespace %s: nothing is made, repaired or removed", f.Namespace))
	}
	return found
}

func (f *Facts) podsOfPart(component string) (found []*core.Pod) {
	for i := range f.Pods {
		p := &f.Pods[i]
		if p.Namespace == f.Namespace && p.Labels[v1.NameLabel] == v1.AppName && p.Labels[v1.ComponentLabel] == component && p.DeletionTimestamp == nil {
			found = append(found, p)
		}
	}
	return found
}

func logs(p *core.Pod) string {
	return fmt.Sprintf("See kubectl -n %s describe pod %s and kubectl -n %s logs %s --all-containers --previous.", p.Namespace, p.Name, p.Namespace, p.Name)
}

// notReady is why a pod is not; empty if it is.
func notReady(f *Facts, p *core.Pod) string {
	for _, c := range p.Status.Conditions {
		if c.Type == core.PodReady && c.Status == core.ConditionTrue {
			return ""
		}
	}
	for _, c := range p.Status.Conditions {
		if c.Type == core.PodScheduled && c.Status == core.ConditionFalse {
			return "it finds no node: " + c.Message
		}
	}
	for _, c := range append(p.Status.InitContainerStatuses, p.Status.ContainerStatuses...) {
		if w := c.State.Waiting; w != nil && w.Reason != "ContainerCreating" && w.Reason != "PodInitializing" {
			last := ""
			if t := c.LastTerminationState.Terminated; t != nil {
				last = fmt.Sprintf("; it ended with code %d %s", t.ExitCode, t.Message)
			}
			return fmt.Sprintf("container %s waits: %s %s%s", c.Name, w.Reason, w.Message, last)
		}
	}
	if e := f.lastWarning("Pod", p.Namespace, p.Name); e != nil {
		return fmt.Sprintf("%s: %s", e.Reason, e.Message)
	}
	return fmt.Sprintf("it is not ready, in phase %s", p.Status.Phase)
}

func lookAtSecret(f *Facts) (found []Finding) {
	c := f.served()
	if c == nil {
		return nil
	}
	want := wantedKeys(c)
	if c.Spec.SecretRef == nil {
		for _, w := range want {
			if w.by != "" {
				found = append(found, problem("StorageCluster "+c.Name, "Name a secret with the keys "+strings.Join(w.keys, " and ")+" in spec.secretRef.", "%s needs a secret, and spec.secretRef names none", w.by))
			}
		}
		return found
	}
	name := kube.SecretName(c, f.Namespace)
	object := "Secret " + name.String()
	if f.Secret == nil {
		return []Finding{problem(object, fmt.Sprintf("kubectl -n %s create secret generic %s --from-literal=username=... --from-literal=password=...", name.Namespace, name.Name), "it does not exist, and spec.secretRef names it")}
	}
	for _, w := range want {
		for _, key := range w.keys {
			if len(f.Secret.Data[key]) == 0 {
				found = append(found, w.missing(object, key))
			}
		}
	}
	return append(found, oddValues(object, f.Secret, f.Now)...)
}

// wanted are keys of the secret, and the field that asks for them; empty for the API, which is only closed without.
type wanted struct {
	by   string
	keys []string
}

func (w wanted) missing(object, key string) Finding {
	if w.by == "" {
		return warn(object, "Add it, or live without the API.", "it has no key %s: the API lets nobody in", key)
	}
	return problem(object, "Add it, or switch the field off.", "it has no key %s, which %s needs", key, w.by)
}

func wantedKeys(c *v1.StorageCluster) []wanted {
	all := []wanted{{"", []string{"username", "password"}}}
	csi := c.Spec.CSI
	for _, w := range []struct {
		on        bool
		field, by string
	}{
		{csi.EnableProvisionCreds, "spec.csi.enableProvisionCreds", "csiProvision"},
		{csi.EnableControllerPublishCreds, "spec.csi.enableControllerPublishCreds", "csiControllerPublish"},
		{csi.EnableNodePublishCreds, "spec.csi.enableNodePublishCreds", "csiNodePublish"},
		{csi.EnableControllerExpandCreds, "spec.csi.enableControllerExpandCreds", "csiControllerExpand"},
	} {
		if w.on {
			all = append(all, wanted{w.field, []string{w.by + "Username", w.by + "Password"}})
		}
	}
	if c.Spec.Ingress.Enable && c.Spec.Ingress.TLS {
		all = append(all, wanted{"spec.ingress.tls", []string{core.TLSCertKey, core.TLSPrivateKeyKey}})
	}
	return all
}

// oddValues are there, but not what somebody meant.
func oddValues(object string, s *core.Secret, now time.Time) (found []Finding) {
	for _, key := range []string{"username", "password"} {
		if strings.HasSuffix(string(s.Data[key]), "\n") {
			found = append(found, warn(object, "Write it without: echo -n.", "its key %s ends with a line break, which is part of it", key))
		}
	}
	cert, key := s.Data[core.TLSCertKey], s.Data[core.TLSPrivateKeyKey]
	if len(cert)+len(key) == 0 {
		return found
	}
	pair, err := tls.X509KeyPair(cert, key)
	if err != nil {
		return append(found, problem(object, "Put in a certificate and its own key, in PEM, or leave out both.", "its keys %s and %s are no pair: %v", core.TLSCertKey, core.TLSPrivateKeyKey, err))
	}
	if end := pair.Leaf.NotAfter; !now.Before(end) {
		found = append(found, problem(object, "Renew it.", "its certificate has expired at %s", end.UTC().Format(time.RFC3339)))
	}
	return found
}
