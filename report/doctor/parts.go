package doctor

import (
	"cmp"
	"crypto/tls"
	"fmt"
	"strings"
	"time"

	core "k8s.io/api/core/v1"

	"github.com/holdfast-storage/holdfast/api/v1beta1"
	"github.com/holdfast-storage/holdfast/kube"
	"github.com/holdfast-storage/holdfast/kube/podstatus"
	"github.com/holdfast-storage/holdfast/report/facts"
)

// checkObjects names the objects that have a field which this program cannot decode.
func checkObjects(f *Facts) (found []Finding) {
	for _, o := range f.Unreadable() {
		found = append(found, problem(o.Object.String(), "Correct the field; kubectl get -o yaml shows it. If the object was written by a newer release, run that one.",
			"it is left alone, as it cannot be read: %v", o.Err))
	}
	return found
}

func checkCluster(f *Facts) (found []Finding) {
	c := f.Served()
	if c == nil {
		return []Finding{problem("", "kubectl apply -f deploy/install.yaml makes one; an empty spec will do.", "there is no StorageCluster, so nothing is installed")}
	}
	for _, other := range f.Clusters {
		if other.UID != c.UID || other.Name != c.Name {
			found = append(found, warn("StorageCluster "+other.Name, "kubectl delete storageclusters.holdfast.dev "+other.Name, "it has no effect, since %s is served", c.Name))
		}
	}
	object, said := "StorageCluster "+c.Name, facts.Message(c.Status.Conditions)
	switch phase := c.Status.Phase; {
	case phase == v1beta1.ClusterPaused:
		found = append(found, note(object, "Set spec.paused to false to have Holdfast look after itself again.", "it is paused: nothing is repaired, and changes have no effect"))
	case phase == "":
		found = append(found, problem(object, "See whether a controller runs.", "no controller has looked at it"))
	case phase == v1beta1.ClusterTerminating:
		found = append(found, problem(object, "Delete the claims that use the volumes, or set spec.deletionPolicy to Orphan to keep volumes and data.", "it is being removed: %s", cmp.Or(said, "it waits")))
	case !facts.Runs(phase):
		found = append(found, problem(object, "", "it is %s: %s", phase, cmp.Or(said, "its conditions say no more")))
	}
	if c.Status.Phase != "" && c.Status.ObservedGeneration < c.Generation {
		found = append(found, problem(object, "See whether a controller runs.", "no controller has looked at its last change"))
	}
	return found
}

func checkServers(f *Facts) (found []Finding) {
	for _, s := range f.Servers {
		level, what := facts.OfServer(s)
		do := fmt.Sprintf("See kubectl -n %s describe nfsservers.holdfast.dev %s.", s.Namespace, s.Name)
		switch {
		case level == Fine:
			continue
		case facts.Unseen(s):
			do = "See whether a controller runs."
		case s.Status.Phase == v1beta1.NFSTerminating:
			do = "Delete the claims that use its volumes."
		}
		found = append(found, Finding{Level: level, Object: "NFSServer " + s.Namespace + "/" + s.Name, What: what, Do: do})
	}
	return found
}

// podSecurity is the label that says which pods a namespace takes.
const podSecurity = "pod-security.kubernetes.io/enforce"

func checkNamespace(f *Facts) []Finding {
	object := "Namespace " + f.Namespace
	if f.Home == nil {
		return []Finding{problem(object, "kubectl apply -f deploy/install.yaml, or say with --namespace where Holdfast is.", "it does not exist")}
	}
	do := fmt.Sprintf("kubectl label --overwrite namespace %s %s=privileged", f.Namespace, podSecurity)
	level, labelled := f.Home.Labels[podSecurity]
	for _, e := range f.Warnings {
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

func checkController(f *Facts) (found []Finding) {
	ready, all := 0, podsOfPart(f, v1beta1.ControllerComponent)
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

func podsOfPart(f *Facts, component string) (found []*core.Pod) {
	for _, p := range f.Pods {
		if p.Namespace == f.Namespace && p.Labels[v1beta1.NameLabel] == v1beta1.AppName && p.Labels[v1beta1.ComponentLabel] == component && p.DeletionTimestamp == nil {
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
	if podstatus.Has(p, core.PodReady, core.ConditionTrue) {
		return ""
	}
	if why := podstatus.Unscheduled(p); why != "" {
		return "it finds no node: " + why
	}
	for _, c := range append(p.Status.InitContainerStatuses, p.Status.ContainerStatuses...) {
		if w := podstatus.Waiting(c); w != nil {
			last := ""
			if t := c.LastTerminationState.Terminated; t != nil {
				last = fmt.Sprintf("; it ended with code %d %s", t.ExitCode, t.Message)
			}
			return fmt.Sprintf("container %s waits: %s %s%s", c.Name, w.Reason, w.Message, last)
		}
	}
	if e := f.LastWarning("Pod", p.Namespace, p.Name); e != nil {
		return fmt.Sprintf("%s: %s", e.Reason, e.Message)
	}
	return fmt.Sprintf("it is not ready, in phase %s", p.Status.Phase)
}

func checkSecret(f *Facts) (found []Finding) {
	c := f.Served()
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
		return warn(object, "Add it, or live without the API.", "it has no key %s: the API admits no user", key)
	}
	return problem(object, "Add it, or switch the field off.", "it has no key %s, which %s needs", key, w.by)
}

func wantedKeys(c *v1beta1.StorageCluster) []wanted {
	all := []wanted{{"", []string{"username", "password"}}}
	csi := c.Spec.CSI
	for _, w := range []struct {
		on        bool
		field, by string
	}{
		{csi.Credentials.Provision, "spec.csi.credentials.provision", "csiProvision"},
		{csi.Credentials.ControllerPublish, "spec.csi.credentials.controllerPublish", "csiControllerPublish"},
		{csi.Credentials.NodePublish, "spec.csi.credentials.nodePublish", "csiNodePublish"},
		{csi.Credentials.ControllerExpand, "spec.csi.credentials.controllerExpand", "csiControllerExpand"},
	} {
		if w.on {
			all = append(all, wanted{w.field, []string{w.by + "Username", w.by + "Password"}})
		}
	}
	if c.Spec.Ingress.Enabled && c.Spec.Ingress.TLS {
		all = append(all, wanted{"spec.ingress.tls", []string{core.TLSCertKey, core.TLSPrivateKeyKey}})
	}
	return all
}

// oddValues are present, but hardly what the administrator meant.
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
