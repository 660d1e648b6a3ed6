// SPDX-License-Identifier: Apache-2.0

package direct

// Report is what "ichor --direct status -o json" prints.
type Report struct {
	Nodes []Node `json:"nodes"`
	Etcd  Etcd   `json:"etcd"`
	// Kubernetes are the addresses at which the Kubernetes API was asked whether it is ready.
	Kubernetes []API `json:"kubernetes"`
	// Lost says in words what doesn't work now, and what still does.
	Lost []string `json:"lost"`
	// Next are the safe moves, in their order.
	Next []Step `json:"next"`
}

// NodeState is what became of an address.
type NodeState string

// The states.
const (
	// Answers: a configured machine of this cluster.
	Answers NodeState = "Answers"
	// Silent: nothing takes a connection, or it says nothing.
	Silent NodeState = "Silent"
	// Maintenance: a machine that has no configuration, so its disk is empty.
	Maintenance NodeState = "Maintenance"
	// Refused: a configured machine that doesn't belong to the bundle's cluster.
	Refused NodeState = "Refused"
	// NotTalos: something else.
	NotTalos NodeState = "NotTalos"
)

// Roles of a node.
const (
	ControlPlane = "controlplane"
	Worker       = "worker"
	// UnknownRole is that of what doesn't answer and nobody knows.
	UnknownRole = "unknown"
)

// Node is one machine.
type Node struct {
	Address  string    `json:"address"`
	Hostname string    `json:"hostname,omitempty"`
	State    NodeState `json:"state"`
	// Message says why it doesn't answer, or what couldn't be read.
	Message      string `json:"message,omitempty"`
	Role         string `json:"role"`
	TalosVersion string `json:"talosVersion,omitempty"`
	// Stage is Talos' own word; Ready means something while it is running. Unmet says what is missing.
	Stage    string    `json:"stage,omitempty"`
	Ready    bool      `json:"ready"`
	Unmet    []string  `json:"unmet,omitempty"`
	Services []Service `json:"services,omitempty"`
	// TimeSynced is absent where the machine didn't say.
	TimeSynced *bool `json:"timeSynced,omitempty"`
	// ClockOffsetSeconds is how far the machine's clock is ahead of this one's; absent where the machine didn't say.
	ClockOffsetSeconds *float64 `json:"clockOffsetSeconds,omitempty"`
}

// Service is one of the services that a cluster stands on: etcd, kubelet and, as static pods, the Kubernetes API.
type Service struct {
	Name string `json:"name"`
	// State is Talos' word; that of a static pod is Running.
	State string `json:"state"`
	// Health is Healthy, Unhealthy or Unknown.
	Health  string `json:"health"`
	Message string `json:"message,omitempty"`
}

// Words for a service's health.
const (
	Healthy       = "Healthy"
	Unhealthy     = "Unhealthy"
	UnknownHealth = "Unknown"
)

// Names of services that decide about a member of etcd and about the Kubernetes API.
const (
	etcdService    = "etcd"
	kubeletService = "kubelet"
	apiServerPod   = "kube-apiserver"
	// preparing is the state of an etcd that waits to join or to be bootstrapped: it has no data.
	preparing = "Preparing"
)

// Quorum says whether etcd can decide anything.
type Quorum string

// The states of the quorum.
const (
	// QuorumHeld: a member follows a leader.
	QuorumHeld Quorum = "Held"
	// QuorumLost: no member follows a leader, and too few of them answer.
	QuorumLost Quorum = "Lost"
	// QuorumElecting: enough members answer, but they have no leader.
	QuorumElecting Quorum = "NoLeader"
	// QuorumUnknown: no control plane answers.
	QuorumUnknown Quorum = "Unknown"
)

// Where the list of members is from.
const (
	FromEtcd      = "etcd"      // a member's own list
	FromDiscovery = "discovery" // the control planes that Talos' discovery knows: without a quorum, etcd doesn't tell
)

// Etcd is the state of etcd, and its arithmetic.
type Etcd struct {
	Quorum Quorum `json:"quorum"`
	Source string `json:"source,omitempty"`
	// Voters is how many there are, Answering how many of them answered, Needed how many a quorum takes.
	Voters    int `json:"voters"`
	Answering int `json:"answering"`
	Needed    int `json:"needed"`
	Learners  int `json:"learners"`
	// MostAdvanced is the member that has applied the most, which a snapshot is taken from.
	MostAdvanced string   `json:"mostAdvanced,omitempty"`
	Members      []Member `json:"members"`
	Alarms       []Alarm  `json:"alarms"`
}

// Member is a member of etcd, or a control plane that ought to have one.
type Member struct {
	// ID is hexadecimal, as etcdctl prints it; empty where nobody tells.
	ID       string `json:"id,omitempty"`
	Hostname string `json:"hostname"`
	Address  string `json:"address,omitempty"`
	// Machine is what became of the address; empty if it wasn't tried.
	Machine NodeState `json:"machine,omitempty"`
	// Service is the state of the machine's etcd in Talos' words.
	Service string `json:"service,omitempty"`
	Learner bool   `json:"learner"`
	// Answers is true if the member told its status.
	Answers bool `json:"answers"`
	Leader  bool `json:"leader"`
	// RaftIndex is what is committed as far as this member knows, RaftApplied what its database holds of that.
	RaftTerm    uint64 `json:"raftTerm,omitempty"`
	RaftIndex   uint64 `json:"raftIndex,omitempty"`
	RaftApplied uint64 `json:"raftAppliedIndex,omitempty"`
	DBSize      int64  `json:"dbSize,omitempty"`
	DBInUse     int64  `json:"dbSizeInUse,omitempty"`
	Version     string `json:"version,omitempty"`
	// Errors are etcd's own words, Problem says why there is no answer.
	Errors  []string `json:"errors,omitempty"`
	Problem string   `json:"problem,omitempty"`
}

// DataGone tells that the member's machine answers and has no data of etcd: it was wiped, or never joined.
func (m *Member) DataGone() bool {
	return m.Machine == Maintenance || m.Machine == Answers && m.Service == preparing
}

// Name is what people call the member.
func (m *Member) Name() string {
	switch {
	case m.Hostname != "":
		return m.Hostname
	case m.Address != "":
		return m.Address
	default:
		return m.ID
	}
}

// Alarm is an alarm of a member.
type Alarm struct {
	Member string `json:"member"`
	// Kind is etcd's word: NOSPACE or CORRUPT.
	Kind string `json:"kind"`
}

// API is one address of the Kubernetes API.
type API struct {
	URL     string `json:"url"`
	Answers bool   `json:"answers"`
	Ready   bool   `json:"ready"`
	Message string `json:"message,omitempty"`
}

// Step is something to do.
type Step struct {
	What string `json:"what"`
	// Command does it, ready to be copied; empty where there is none.
	Command string `json:"command,omitempty"`
}
