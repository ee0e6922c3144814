package ganesha

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"
)

// rootFilesystem is not used by exports: clients treat two exports with the same id as one file system.
const rootFilesystem = "0.1"

// configuration renders Ganesha's configuration with all exports, so that after a restart it has them before it
// answers. It opens only the one port: protocols that need others are disabled.
func configuration(c *Config, exports map[uint16]Export) string {
	var b strings.Builder
	fmt.Fprintf(&b, `NFS_CORE_PARAM {
	NFS_Port = %d;
	Protocols = 4;
	Clustered = false;
	Enable_UDP = false;
	Enable_NLM = false;
	Enable_RQUOTA = false;
	fsid_device = false;
}
NFS_KRB5 {
	Active_krb5 = false;
	CCacheDir = %s;
}
NFSV4 {
	Minor_Versions = 1, 2;
	Server_Owner = %s;
	Server_Scope = %s;
	Lease_Lifetime = %d;
	Grace_Period = %d;
	RecoveryBackend = fs;
	RecoveryRoot = %s;
	Only_Numeric_Owners = true;
	PNFS_MDS = false;
	PNFS_DS = false;
}
LOG {
	Default_Log_Level = EVENT;
	Format {
		date_format = none;
		time_format = none;
		EPOCH = false;
		HOSTNAME = false;
		PROGNAME = false;
		PID = false;
		THREAD_NAME = false;
		FILE_NAME = false;
		LINE_NUM = false;
		FUNCTION_NAME = false;
	}
}
EXPORT {
	Export_Id = 0;
	Path = "/";
	Pseudo = "/";
	Protocols = 4;
	Transports = TCP;
	SecType = sys;
	Access_Type = MDONLY_RO;
	Squash = all_squash;
	Filesystem_Id = %s;
	FSAL { Name = PSEUDO; }
}
`, c.Port, quote(c.RunDir), quote(c.Name), quote(c.Name), c.Lease/time.Second, c.Grace/time.Second, quote(c.RecoveryDir), rootFilesystem)
	for _, id := range slices.Sorted(maps.Keys(exports)) {
		b.WriteString(exportBlock(exports[id]))
	}
	return b.String()
}

// exportBlock renders an export that Check accepts.
func exportBlock(e Export) string {
	access := "RW"
	if e.ReadOnly {
		access = "RO"
	}
	squash := e.Squash
	fill(&squash, NoRootSquash)
	permissions := func(access string) string {
		p := fmt.Sprintf("Access_Type = %s; Squash = %s; Protocols = 4; Transports = TCP; SecType = sys;", access, squash)
		return p + anonymous("uid", e.AnonUID) + anonymous("gid", e.AnonGID)
	}
	all, some := permissions(access), ""
	if len(e.Clients) > 0 {
		all = permissions("None")
		some = fmt.Sprintf("\tCLIENT { Clients = %s; %s }\n", strings.Join(networks(e.Clients), ", "), permissions(access))
	}
	return fmt.Sprintf(`EXPORT {
	Export_Id = %d;
	Path = %s;
	Pseudo = %s;
	Filesystem_Id = %s;
	%s
%s	FSAL { Name = VFS; }
}
`, e.ID, quote(e.Path), quote(e.Pseudo), e.Filesystem, all, some)
}

// overflowID is the usual anonymous user and group. Ganesha's default is 4294967294.
const overflowID = 65534

func anonymous(kind string, id *uint32) string {
	if id == nil {
		id = new(uint32(overflowID))
	}
	return fmt.Sprintf(" Anonymous_%s = %d;", kind, *id)
}

// networks formats clients for Ganesha, which does not parse prefix length 0, and takes 0.0.0.0 for all.
func networks(clients []string) (spelled []string) {
	for _, client := range clients {
		p, _ := network(client) // Check has read it
		switch {
		case p.Bits() == 0 && p.Addr().Is4():
			spelled = append(spelled, "0.0.0.0/1", "128.0.0.0/1")
		case p.Bits() == 0:
			spelled = append(spelled, "::/1", "8000::/1")
		case p.IsSingleIP() && p.Addr().Is6():
			spelled = append(spelled, p.Addr().String())
		default:
			spelled = append(spelled, p.String())
		}
	}
	return spelled
}

// quote never needs escapes: its arguments have no quotes, backslashes or line breaks.
func quote(text string) string { return strconv.Quote(text) }
