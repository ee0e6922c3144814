package schema_test

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/util/json"
)

// refusesChange returns the fields for which the API server would not take a change of an object, none if it takes it.
func (d *definition) refusesChange(t *testing.T, object, changed string) (fields []string) {
	t.Helper()
	var before, after map[string]any
	if err := errors.Join(json.Unmarshal([]byte(object), &before), json.Unmarshal([]byte(changed), &after)); err != nil {
		t.Fatal(err)
	}
	for _, err := range d.validate(after, before) {
		fields = append(fields, err.Field)
	}
	slices.Sort(fields)
	return slices.Compact(fields) // two rules may refuse one
}

// wantChange checks that a change, as a merge patch of an object, is refused for one field, or taken where that is empty.
func wantChange(t *testing.T, d *definition, object, patch, field string) {
	t.Helper()
	if got := strings.Join(d.refusesChange(t, object, patched(t, object, patch)), " "); got != field {
		t.Errorf("%s with %s: refused are %q, want %q", d.kind, patch, got, field)
	}
}

// patched is a value in JSON after a merge patch.
func patched(t *testing.T, value, patch string) string {
	t.Helper()
	text, err := json.Marshal(merged(tree(t, value), tree(t, patch)))
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// others has for the fields of a spec that never change values other than those of full, and other than none.
var others = map[string]map[string]string{
	"Volume": {
		"name":         `"other"`,
		"claimRef":     `{"namespace":"a","name":"other"}`,
		"node":         `"other.node"`,
		"pool":         `"slow"`,
		"mode":         `"Filesystem"`,
		"fsType":       `"ext4"`,
		"provisioning": `"Thin"`,
		"mkfsOptions":  `["-m"]`,
		"inodes":       `17`,
		"labels":       `{"a":"c"}`,
		"sourceRef":    `{"kind":"Snapshot","name":"other"}`,
		"onNodeLoss":   `"Retain"`,
		"deletion":     `{"uid":"u","requestedBy":"c","requestedAt":"2026-11-24T03:00:00.000000Z","reason":"another"}`,
	},
	"Snapshot": {
		"name":      `"other"`,
		"sourceRef": `{"kind":"Volume","name":"w"}`,
		"node":      `"other.node"`,
		"group":     `{"name":"g","volumes":["v","x"]}`,
		"deletion":  `{"uid":"u","requestedBy":"c","requestedAt":"2026-11-24T03:00:00.000000Z","reason":"another"}`,
	},
}

// elsewhere are the fields whose changes are in TestChanges.
var elsewhere = []string{"size", "populatedBy", "shared", "serverRef"}

// The least objects of the kinds whose specs never change.
var least = map[string]string{
	"Volume":   `{"name":"a","node":"n"}`,
	"Snapshot": `{"name":"a","node":"n","sourceRef":{"kind":"Volume","name":"v"}}`,
}

func TestImmutable_FieldNeverChangesOrComesOrGoes(t *testing.T) {
	all := definitions(t)
	for kind, values := range others {
		d := all[kind]
		spec := d.structural.Properties["spec"]
		for field := range spec.Properties {
			value, is := values[field]
			if is == slices.Contains(elsewhere, field) {
				t.Errorf("%s: no change of spec.%s is tried, or in two places", kind, field)
			}
			if !is {
				continue
			}
			whole := patched(t, object(kind, full[kind][0]), `{"spec":{"populatedBy":null}}`) // which needs sourceRef
			wantChange(t, d, whole, `{"spec":{"`+field+`":`+value+`}}`, "spec."+field)
			wantChange(t, d, whole, `{"spec":{"`+field+`":null}}`, "spec."+field)
			if !strings.Contains(least[kind], `"`+field+`"`) && field != "deletion" { // which is requested later
				wantChange(t, d, object(kind, least[kind]), `{"spec":{"`+field+`":`+value+`}}`, "spec."+field)
			}
		}
	}
}

const (
	cephPool = `{"name":"block","engine":"RBD","ceph":{"fsid":"11111111-2222-3333-4444-555555555555",
		"monitors":["v2:10.0.0.1:3300","v1:[fd00::1]:6789"],"pool":"rbd","secretRef":{"name":"ceph"},"nodeSecretRef":{"name":"ceph-node"}}}`
	cephAccess = `{"cluster":{"fsid":"11111111-2222-3333-4444-555555555555","monitors":["v2:192.0.2.1:3300"],"user":"holdfast-node"},
		"path":"/a","filesystem":"f","pool":"p","image":"i","imageID":"10"}`
)

func TestChanges_AreTakenOrRefusedByField(t *testing.T) {
	all := definitions(t)
	shared := `{"name":"a","node":"no.server.nfs.holdfast.dev","shared":true}`
	server := `{"namespace":"no","name":"server"}`
	ofClass, ofClaim, ofDirectory, published := full["NFSServer"][0], full["NFSServer"][1], full["NFSServer"][2], full["NFSServer"][3]
	for _, c := range []struct {
		kind, spec string
		changes    map[string]string // of the spec, with the field that is refused for it
	}{
		{"Volume", full["Volume"][0], map[string]string{
			`{"populatedBy":""}`:   "spec.populatedBy",
			`{"populatedBy":null}`: "spec.populatedBy",
		}},
		{"Volume", least["Volume"], map[string]string{
			`{"populatedBy":"Pod"}`:                     "spec.populatedBy",
			`{"size":{"required":"1Gi"}}`:               "",
			`{"size":{"required":"1Gi","limit":"2Gi"}}`: "", // one without a size can be given one
		}},
		{"Volume", `{"name":"a","node":"no.server.nfs.holdfast.dev"}`, map[string]string{`{"shared":true}`: "spec.shared"}},
		{"Volume", shared, map[string]string{
			`{"serverRef":` + server + `}`: "spec.serverRef",
			`{"shared":false}`:             "spec.shared",
			`{"shared":null}`:              "spec.shared",
		}},
		{"Volume", full["Volume"][1], map[string]string{`{"serverRef":null}`: "spec.serverRef"}},
		{"Volume", `{"name":"a","node":"n","size":{"required":"10Gi","limit":"20Gi"}}`, map[string]string{
			`{"size":{"required":"10240Mi"}}`:                  "",
			`{"size":{"required":"11Gi"}}`:                     "",
			`{"size":{"required":"20Gi"}}`:                     "",
			`{"size":{"required":"30Gi","limit":"40Gi"}}`:      "",
			`{"size":{"required":"11Gi","limit":"12Gi"}}`:      "", // the limit is of the new wish
			`{"size":{"required":"30Gi","limit":null}}`:        "",
			`{"size":{"required":1099511627776,"limit":null}}`: "",
			`{"size":null}`:                              "spec.size",
			`{"size":{"required":null}}`:                 "spec.size.required",
			`{"size":{"required":"10239Mi"}}`:            "spec.size.required",
			`{"size":{"required":1}}`:                    "spec.size.required",
			`{"size":{"required":"21Gi"}}`:               "spec.size.limit",
			`{"size":{"required":"11Gi","limit":"1Gi"}}`: "spec.size.limit",
			`{"size":{"limit":"30Gi"}}`:                  "spec.size.limit",
			`{"size":{"limit":null}}`:                    "spec.size.limit",
		}},
		{"Snapshot", full["Snapshot"][0], map[string]string{
			`{"group":{"volumes":["w","v"]}}`: "", // the members of a group have no order
		}},
		{"NFSServer", ofClass, map[string]string{
			`{"storage":{"size":"2Gi"}}`:                         "",
			`{"storage":{"size":"1024Mi"}}`:                      "",
			`{"exports":null,"maxExports":1,"gracePeriod":null}`: "",
			`{"storage":{"size":"1Mi"}}`:                         "spec.storage.size",
			`{"storage":{"storageClassName":"slow"}}`:            "spec.storage.storageClassName",
			`{"storage":{"storageClassName":null}}`:              "spec.storage.storageClassName",
			`{"engine":"","maxExports":0}`:                       "spec.engine",
			`{"engine":"Image","maxExports":0}`:                  "spec.engine",
			`{"service":{"clusterIP":"10.96.0.8"}}`:              "spec.service.clusterIP",
			`{"service":{"clusterIP":null}}`:                     "spec.service.clusterIP",
			`{"service":{"port":3050}}`:                          "spec.service.port",
		}},
		{"NFSServer", ofClaim, map[string]string{
			`{"storage":{"claimName":"another"}}`: "spec.storage.claimName",
			`{"engine":"Image"}`:                  "", // which is what it is
		}},
		{"NFSServer", ofDirectory, map[string]string{
			`{"storage":{"hostPath":"/other"}}`: "spec.storage.hostPath",
			`{"nodeSelectorTerms":null}`:        "spec.nodeSelectorTerms",
		}},
		{"NFSServer", published, map[string]string{
			`{"publish":{"name":"p"}}`:                  "",
			`{"publish":{"claimName":"another"}}`:       "spec.publish.claimName",
			`{"storage":{"size":"1Gi"},"publish":null}`: "spec",
		}},
		{"StorageUpgrade", `{"version":"v2"}`, map[string]string{`{"version":"v3"}`: "spec"}},
		{"NodeJob", `{"image":"i"}`, map[string]string{`{"image":"j"}`: "spec"}},
	} {
		for patch, field := range c.changes {
			wantChange(t, all[c.kind], object(c.kind, c.spec), `{"spec":`+patch+`}`, field)
		}
	}
}

func TestCephPool_WhereItsVolumesAreCannotBeChanged(t *testing.T) {
	d := definitions(t)["StorageCluster"]
	for change, field := range map[string]string{
		`{"ceph":{"monitors":["v2:10.0.0.9:3300"]}}`:               "",
		`{"ceph":{"user":"a","nodeUser":"b"}}`:                     "",
		`{"ceph":{"secretRef":{"name":"other"}}}`:                  "",
		`{"ceph":{"dataPool":"wide"}}`:                             "",
		`{"name":"other","ceph":{"pool":"other"}}`:                 "",
		`{"ceph":{"fsid":"99999999-2222-3333-4444-555555555555"}}`: "spec.pools[0].ceph.fsid",
		`{"ceph":{"pool":"other"}}`:                                "spec.pools[0].ceph.pool",
		`{"ceph":{"namespace":"other"}}`:                           "spec.pools[0].ceph.namespace",
		`{"engine":null,"ceph":null}`:                              "spec.pools[0].ceph",
	} {
		before := object("StorageCluster", `{"pools":[`+cephPool+`]}`)
		after := object("StorageCluster", `{"pools":[`+patched(t, cephPool, change)+`]}`)
		if got := strings.Join(d.refusesChange(t, before, after), " "); got != field {
			t.Errorf("with %s: refused are %q, want %q", change, got, field)
		}
	}
}

func TestStatus_UnknownValueIsRefused(t *testing.T) {
	both := map[string]string{
		`{"phase":"Fine"}`:                        "phase",
		`{"error":{"code":"Oops","message":"m"}}`: "error.code",
		`{"error":{"code":"Busy"}}`:               "error.message",
		`{"mode":"Tape"}`:                         "mode",
		`{"size":"much"}`:                         "size",
	}
	ofVolume := map[string]string{
		`{"access":{"image":"/a","directory":"/b"}}`:                            "access",
		`{"access":{"nfs":{"path":"/a"}}}`:                                      "access.nfs.server",
		`{"access":{"nfs":{"server":"10.0.0.1","path":"a"}}}`:                   "access.nfs.path",
		`{"provisioning":"thin"}`:                                               "provisioning",
		`{"sourceRef":{"kind":"volume","name":"a"}}`:                            "sourceRef.kind",
		`{"sourceRef":{"kind":"Volume","name":"A"}}`:                            "sourceRef.name",
		`{"access":{"image":"/a","nfs":{"server":"10.0.0.1","path":"/a"}}}`:     "access",
		`{"access":{"directory":"/a","nfs":{"server":"10.0.0.1","path":"/a"}}}`: "access",
	}
	for _, engine := range []string{"rbd", "cephfs"} {
		access := func(change string) string {
			return `{"access":{"` + engine + `":` + patched(t, cephAccess, `{"cluster":`+change+`}`) + `}}`
		}
		ofVolume[`{"access":{"image":"/a","`+engine+`":`+cephAccess+`}}`] = "access"
		for change, field := range map[string]string{
			`{"fsid":"files"}`:                              "fsid",
			`{"monitors":["192.0.2.1"]}`:                    "monitors[0]",
			`{"monitors":["v2:192.0.2.1:3300,name=admin"]}`: "monitors[0]",
			`{"monitors":[]}`:                               "monitors",
			`{"user":""}`:                                   "user",
		} {
			ofVolume[access(change)] = "access." + engine + ".cluster." + field
		}
	}
	all := definitions(t)
	for kind, refused := range map[string][]map[string]string{"Volume": {both, ofVolume}, "Snapshot": {both}} {
		for _, values := range refused {
			for value, field := range values {
				wantChange(t, all[kind], object(kind, least[kind]), `{"status":`+value+`}`, "status."+field)
			}
		}
	}
	wantChange(t, all["NFSServer"], object("NFSServer", full["NFSServer"][0]), `{"status":{"phase":"Served"}}`, "status.phase")
	// That of a damaged volume may be incomplete.
	damaged := `{"status":{"phase":"Failed","access":{},"conditions":[],"mode":"","provisioning":""}}`
	wantChange(t, all["Volume"], object("Volume", least["Volume"]), damaged, "")
}
