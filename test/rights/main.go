// Command rights compares what the roles of Holdfast allow with what its programs asked a test cluster for, by the audit
// log of that cluster's API server: a right that nothing has used in all tests is one too many, or lacks a test.
//
//	make e2e && go run ./test/rights "$(dirname "$(bin/cluster -name e2e kubeconfig)")"
package main

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
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

func run(dir string) error {
	granted, err := grants()
	if err != nil {
		return err
	}
	used, requests, err := uses(dir)
	if err != nil {
		return err
	}
	unused := slices.DeleteFunc(slices.Clone(granted), func(r right) bool { return used[r] })
	for _, r := range unused {
		fmt.Println(r)
	}
	fmt.Printf("%d requests used %d of %d rights\n", requests, len(granted)-len(unused), len(granted))
	return nil
}

// grants are the rights in the manifests.
func grants() (all []right, err error) {
	for _, file := range []string{"deploy/base/controller-rbac.yaml", "deploy/operated/node-rbac.yaml", "deploy/operated/nfs-rbac.yaml"} {
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

var allowedBy = regexp.MustCompile(`^RBAC: allowed by (?:Cluster)?RoleBinding "[^"]*" of ((?:Cluster)?Role) "(holdfast-[^"]*)"`)

// uses reads in the audit log, whose file is begun anew from time to time, what was asked for, each with the name of the
// object and without.
func uses(dir string) (used map[right]bool, requests int, err error) {
	files, err := filepath.Glob(filepath.Join(dir, "logs", "audit*.log"))
	if err != nil {
		return nil, 0, err
	}
	if len(files) == 0 {
		return nil, 0, fmt.Errorf("%s has no logs/audit.log: give the directory of a cluster that runs", dir)
	}
	used = map[right]bool{}
	for _, path := range files {
		if err := eachEvent(path, func(e event) {
			role := allowedBy.FindStringSubmatch(e.Annotations["authorization.k8s.io/reason"])
			if role == nil {
				return
			}
			requests++
			resource := inGroup(strings.TrimSuffix(e.ObjectRef.Resource+"/"+e.ObjectRef.Subresource, "/"), e.ObjectRef.APIGroup)
			for _, name := range []string{"", e.ObjectRef.Name} {
				used[right{role[1] + " " + role[2], e.Verb, resource, name}] = true
			}
		}); err != nil {
			return nil, 0, err
		}
	}
	return used, requests, nil
}

type event struct {
	Verb        string
	ObjectRef   struct{ Resource, Subresource, APIGroup, Name string }
	Annotations map[string]string
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
