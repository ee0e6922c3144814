// Command rights compares what the roles of Holdfast allow with what its programs asked a test cluster for, by the audit
// log of that cluster's API server: a right that nothing has used in all tests is one too many, or lacks a test, and a
// request that was refused lacks a right.
//
//	make e2e && go run ./test/tool/rights "$(dirname "$(bin/cluster -name e2e kubeconfig)")"
package main

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	rbac "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/util/yaml"
)

func main() {
	if len(os.Args) != 2 {
		fmt.Fprintln(os.Stderr, "usage: rights DIRECTORY-OF-THE-CLUSTER")
		os.Exit(2)
	}
	if err := run(os.Args[1]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// right is one verb on one resource, of one name if it has one, that a role allows.
type right struct{ role, verb, resource, name string }

func (r right) String() string {
	if r.name != "" {
		return fmt.Sprintf("%s: %s %s %s", r.role, r.verb, r.resource, r.name)
	}
	return fmt.Sprintf("%s: %s %s", r.role, r.verb, r.resource)
}

// account is what the role and those that it is given to have in common: their name.
func (r right) account() string { return r.role[strings.Index(r.role, " ")+1:] }

func run(dir string) error {
	granted, err := grants()
	if err != nil {
		return err
	}
	asked, refused, err := requests(dir)
	if err != nil {
		return err
	}
	show("not used", slices.DeleteFunc(slices.Clone(granted), func(r right) bool {
		return slices.ContainsFunc(granted, func(other right) bool { return asked.by(other) && r.covers(other) })
	}))
	show("in a Role and in the ClusterRole", slices.DeleteFunc(slices.Clone(granted), func(r right) bool {
		return !slices.ContainsFunc(granted, func(wide right) bool { return wide != r && wide.account() == r.account() && wide.includes(r) })
	}))
	show("refused", refused)
	return nil
}

func show[T fmt.Stringer](what string, all []T) {
	fmt.Printf("%d %s\n", len(all), what)
	for _, r := range all {
		fmt.Println("\t" + r.String())
	}
}

// includes says whether this role allows all that the other right does.
func (r right) includes(o right) bool {
	return strings.HasPrefix(r.role, "Cluster") && r.verb == o.verb && r.resource == o.resource && (r.name == "" || r.name == o.name)
}

// covers says whether it is for the other that this right is there: it is the same, or it is handed on by the controller,
// which can give only what it has.
func (r right) covers(o right) bool {
	handed := r.account() == "holdfast-controller" && (r.name == "" || r.name == o.name)
	return r.verb == o.verb && r.resource == o.resource && (r == o || handed)
}

// grants are the rights in the manifests.
func grants() (all []right, err error) {
	for _, file := range []string{"deploy/base/controller-rbac.yaml", "deploy/operated/node-rbac.yaml", "deploy/operated/nfs-rbac.yaml", "deploy/operated/ceph.yaml"} {
		f, err := os.Open(file)
		if err != nil {
			return nil, fmt.Errorf("%w; run it where go.mod is", err)
		}
		defer f.Close()
		for objects := yaml.NewYAMLOrJSONDecoder(f, 4096); ; {
			role := rbac.ClusterRole{} // a Role has the same rules
			if err := objects.Decode(&role); errors.Is(err, io.EOF) {
				break
			} else if err != nil {
				return nil, fmt.Errorf("%s: %w", file, err)
			}
			if !strings.HasSuffix(role.Kind, "Role") {
				continue
			}
			for _, rule := range role.Rules {
				all = append(all, expand(role.Kind+" "+role.Name, rule)...)
			}
		}
	}
	return all, nil
}

func expand(role string, rule rbac.PolicyRule) (all []right) {
	names := rule.ResourceNames
	if len(names) == 0 {
		names = []string{""}
	}
	for _, group := range rule.APIGroups {
		for _, resource := range rule.Resources {
			for _, name := range names {
				for _, verb := range rule.Verbs {
					all = append(all, right{role, verb, inGroup(resource, group), name})
				}
			}
		}
	}
	return all
}

func inGroup(resource, group string) string {
	if group == "" {
		return resource
	}
	resource, sub, divided := strings.Cut(resource, "/")
	if divided {
		return resource + "." + group + "/" + sub
	}
	return resource + "." + group
}

// asks are the requests of Holdfast's accounts, each with the name of the object and without.
type asks map[right]bool

func (a asks) by(r right) bool { return a[right{r.account(), r.verb, r.resource, r.name}] }

var accounts = regexp.MustCompile(`^system:serviceaccount:[^:]*:(holdfast-.*)$`)

// requests reads the audit log, whose file is rotated from time to time.
func requests(dir string) (asked asks, refused []right, err error) {
	files, err := filepath.Glob(filepath.Join(dir, "logs", "audit*.log"))
	if err != nil {
		return nil, nil, err
	}
	if len(files) == 0 {
		return nil, nil, fmt.Errorf("%s has no logs/audit.log: give the directory of a cluster that runs", dir)
	}
	asked = asks{}
	for _, path := range files {
		if err := eachEvent(path, func(e event) {
			account := accounts.FindStringSubmatch(e.User.Username)
			if account == nil || e.ObjectRef.Resource == "" {
				return
			}
			for _, r := range e.rights() {
				r.role = account[1]
				if e.ResponseStatus.Code == http.StatusForbidden { // by the roles, or since a role would give what its maker has not
					refused = append(refused, r)
					continue
				}
				asked[r] = true
				r.name = ""
				asked[r] = true
			}
		}); err != nil {
			return nil, nil, err
		}
	}
	slices.SortFunc(refused, func(a, b right) int { return strings.Compare(a.String(), b.String()) })
	return asked, slices.Compact(refused), nil
}

// rights are what a request needs. Server-side apply of an object that is not there needs two.
func (e event) rights() []right {
	resource := inGroup(strings.TrimSuffix(e.ObjectRef.Resource+"/"+e.ObjectRef.Subresource, "/"), e.ObjectRef.APIGroup)
	all := []right{{verb: e.Verb, resource: resource, name: e.ObjectRef.Name}}
	if e.Verb == "patch" && e.ResponseStatus.Code == http.StatusCreated {
		all = append(all, right{verb: "create", resource: resource, name: e.ObjectRef.Name})
	}
	return all
}

type event struct {
	Verb           string
	User           struct{ Username string }
	ObjectRef      struct{ Resource, Subresource, APIGroup, Name string }
	ResponseStatus struct{ Code int }
}

func eachEvent(path string, visit func(event)) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	lines := bufio.NewScanner(f)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		var e event
		if err := json.Unmarshal(lines.Bytes(), &e); err != nil {
			continue // the last line may not be written yet
		}
		visit(e)
	}
	return lines.Err()
}
