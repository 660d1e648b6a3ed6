// SPDX-License-Identifier: Apache-2.0

package v1alpha1

// Names that people and manifests depend on.
const (
	// MachineFinalizer holds a TalosMachine until the machine was let go.
	MachineFinalizer = "ichor.maesh.dev/machine"
	// ClusterFinalizer holds a TalosCluster until it has no machines and no slots.
	ClusterFinalizer = "ichor.maesh.dev/cluster"
	// TrustMaintenanceFingerprintAnnotation on an approved TalosMachine names the maintenance fingerprint to accept
	// instead of the one pinned at approval. Setting or changing it needs the verb "approve" on
	// "talosmachines/approval".
	TrustMaintenanceFingerprintAnnotation = "ichor.maesh.dev/trust-maintenance-fingerprint"
	// TrustAnnotationPrefix is the prefix of annotations that only an approver may set.
	TrustAnnotationPrefix = "ichor.maesh.dev/trust-"
	// HoldApplyAnnotation on a TalosMachine stops Ichor from sending it any configuration, whatever its value.
	HoldApplyAnnotation = "ichor.maesh.dev/hold-apply"
	// PatchValuesLabel on a Secret in ichor-system, with the value "true", lets patches take values from it: nobody can have
	// the cluster's own keys written into a machine's configuration by naming their Secret.
	PatchValuesLabel = "ichor.maesh.dev/patch-values"
	// CordonedByAnnotation on a Node holds the UID of the TalosOperation that cordoned it, or of the TalosMachine that was
	// removed, and is written in one request with that: a Node without it was cordoned by somebody else, and stays so.
	CordonedByAnnotation = "ichor.maesh.dev/cordoned-by"
	// OperationUIDLabel on a Job that is a gate holds the UID of its TalosOperation.
	OperationUIDLabel = "ichor.maesh.dev/operation-uid"
	// OperationAnnotation, MachineAnnotation and GateAnnotation on such a Job and its pods hold the names of the
	// TalosOperation, of the TalosMachine that is about to begin, and of the gate.
	OperationAnnotation = "ichor.maesh.dev/operation"
	MachineAnnotation   = "ichor.maesh.dev/machine"
	GateAnnotation      = "ichor.maesh.dev/gate"
	// SystemNamespace holds Ichor's Secrets and Leases.
	SystemNamespace = "ichor-system"
	// InstallationName is the name of the one IchorInstallation.
	InstallationName = "ichor"
	// SecretsBundleKey is the key of the secrets bundle in the Secret that spec.secretsRef names.
	SecretsBundleKey = "bundle.yaml"
)

// Verbs of Ichor's own, checked in addition to update and patch.
const (
	// VerbApprove on talosmachines/approval (by resource name) lets a person approve, reject and resolve machines.
	VerbApprove = "approve"
	// VerbRemove on talosmachines/removal lets a person delete an approved machine.
	VerbRemove = "remove"
	// VerbRequest on taloscredentialrequests/role, with a Talos role as resource name, lets a person ask for a client
	// certificate of that role.
	VerbRequest = "request"
	// VerbConfigure on talosclusters/cni lets a person change the network plugin.
	VerbConfigure = "configure"
)

// Steps of an operation in which its machine's configuration is changed: while one is on its way, the machine is configured
// though an operation holds the cluster.
const (
	StepKubeAPIServer         = "KubeAPIServer"
	StepKubeControllerManager = "KubeControllerManager"
	StepKubeScheduler         = "KubeScheduler"
	StepKubelet               = "Kubelet"
)

// Condition types of every kind. The server writes both, with every write of an object, from what else is known of it;
// clients can't. They follow kstatus: True says that something is out of the ordinary, absent is as good as False. An
// object that has neither is as it was asked to be.
const (
	// ConditionReconciling is True while an object is on its way to what it was asked to be.
	ConditionReconciling = "Reconciling"
	// ConditionStalled is True while an object stands still until somebody does something.
	ConditionStalled = "Stalled"
)

// Condition types of a TalosMachine.
const (
	// ConditionIdentityResolved is False while it isn't sure which machine this is; such a machine can't be approved.
	ConditionIdentityResolved = "IdentityResolved"
	// ConditionReachable tells whether the machine answered when it was last tried; moves on transitions only.
	ConditionReachable = "Reachable"
	// ConditionFingerprintTrusted is False when the machine presents another maintenance certificate than was approved.
	ConditionFingerprintTrusted = "FingerprintTrusted"
	// ConditionConfigApplied tells whether the machine has taken its configuration.
	ConditionConfigApplied = "ConfigApplied"
	// ConditionInstalled tells whether Talos runs from the approved disk.
	ConditionInstalled = "Installed"
	// ConditionJoined tells whether the machine's Node exists (and its etcd member votes, for control planes).
	ConditionJoined = "Joined"
	// ConditionReset is Unknown from when a machine that is being removed is about to be told to wipe itself, True from when
	// it accepted, and False where it wasn't told after all. Operations leave control planes alone meanwhile.
	ConditionReset = "Reset"
	// ConditionDrained tells, of a machine that is being removed, whether its Node was drained, and if not, what it waits for.
	ConditionDrained = "Drained"
	// ConditionReady sums up: Talos runs, the Node is ready and the configuration is the rendered one.
	ConditionReady = "Ready"
	// ConditionDriftDetected is true where the running configuration differs from the one the machine is to have.
	ConditionDriftDetected = "DriftDetected"
	// ConditionPoweredOff is True from when an operation has powered the machine off until it answers again; absent otherwise.
	ConditionPoweredOff = "PoweredOff"
	// ConditionHardened is False where a machine lacks what spec.hardening of its cluster asks for; absent if nothing that
	// a machine could lack is asked for.
	ConditionHardened = "Hardened"
)

// Condition types of a TalosCluster.
const (
	// ConditionAvailable tells whether the cluster's Kubernetes API answers.
	ConditionAvailable = "Available"
	// ConditionSecretsReady tells whether the secrets bundle is there and usable.
	ConditionSecretsReady = "SecretsReady"
	// ConditionEtcdHealthy tells whether etcd has a quorum of healthy voters.
	ConditionEtcdHealthy = "EtcdHealthy"
	// ConditionDiscovered tells how the last scan for machines went.
	ConditionDiscovered = "Discovered"
	// ConditionSurplusControlPlane is True when more control planes are Ready than spec.controlPlane.count.
	ConditionSurplusControlPlane = "SurplusControlPlane"
	// ConditionConfigurationPending is True while machines wait for a reboot, or for somebody, to get their configuration.
	// DriftDetected of a cluster is True while somebody has changed one of its machines.
	ConditionConfigurationPending = "ConfigurationPending"
	// ConditionMachinesQuarantined is True while a machine is back that was removed without being wiped.
	ConditionMachinesQuarantined = "MachinesQuarantined"
	// ConditionDeleting is True while a cluster is being deleted, and says how far that is and what it waits for.
	ConditionDeleting = "Deleting"
)

// Condition types of the kinds that describe work.
const (
	// ConditionProgressing is True while something is done: a backup is taken, a part is replaced.
	ConditionProgressing = "Progressing"
	// ConditionComplete is True when an operation or a reclaim has done what it was made for.
	ConditionComplete = "Complete"
	// ConditionFailed is True when an operation, a reclaim or a request has ended without that.
	ConditionFailed = "Failed"
	// ConditionIssued is True when a TalosCredentialRequest has its certificate.
	ConditionIssued = "Issued"
)

// Condition types of a TalosConfigPatch, besides Ready.
const (
	// ConditionConflicting is true where another patch sets a field to something else; the one that is merged last holds.
	ConditionConflicting = "Conflicting"
)

// Condition types of an IchorUser.
const (
	// ConditionCertificateIssued tells whether the certificate that was asked for last is issued.
	ConditionCertificateIssued = "CertificateIssued"
	// ConditionPasswordSet tells whether the user has a password.
	ConditionPasswordSet = "PasswordSet"
)

// Reasons of conditions. Each names the state for programs; the message tells a person what to do.
const (
	ReasonStrongIdentity       = "StrongIdentity"
	ReasonResolvedByPerson     = "ResolvedByPerson"
	ReasonUnusableUUID         = "UnusableUUID"
	ReasonUUIDHeldByOther      = "UUIDHeldByOther"
	ReasonSerialHeldByOther    = "SerialHeldByOther"
	ReasonWaitingForApproval   = "WaitingForApproval"
	ReasonRejected             = "Rejected"
	ReasonPinned               = "Pinned"
	ReasonTrustedByAnnotation  = "TrustedByAnnotation"
	ReasonFingerprintChanged   = "FingerprintChanged"
	ReasonHeld                 = "Held"
	ReasonSecretsMissing       = "SecretsMissing"
	ReasonSecretsInvalid       = "SecretsInvalid"
	ReasonClusterMissing       = "ClusterMissing"
	ReasonClusterReplaced      = "ClusterReplaced"
	ReasonRenderFailed         = "RenderFailed"
	ReasonWaitingForTurn       = "WaitingForTurn"
	ReasonApplying             = "Applying"
	ReasonApplied              = "Applied"
	ReasonRefusedByMachine     = "RefusedByMachine"
	ReasonOtherMachine         = "OtherMachine"
	ReasonUnreachable          = "Unreachable"
	ReasonAnswers              = "Answers"
	ReasonPoweredOff           = "PoweredOff"
	ReasonInstalling           = "Installing"
	ReasonInstalled            = "Installed"
	ReasonWrongDisk            = "WrongDisk"
	ReasonDiskMissing          = "DiskMissing"
	ReasonWaitingForNode       = "WaitingForNode"
	ReasonWaitingForEtcd       = "WaitingForEtcd"
	ReasonEtcdLearner          = "EtcdLearner"
	ReasonJoined               = "Joined"
	ReasonNodeNotReady         = "NodeNotReady"
	ReasonTalosNotReady        = "TalosNotReady"
	ReasonReady                = "Ready"
	ReasonWiped                = "Wiped"
	ReasonConfirmationRequired = "ConfirmationRequired"
	ReasonConflict             = "Conflict"
	ReasonPasswordSet          = "PasswordSet"
	ReasonNotObserved          = "NotObserved"
	ReasonSuspended            = "Suspended"
	ReasonInSync               = "InSync"
	ReasonDrifted              = "Drifted"
	ReasonPendingReboot        = "PendingReboot"
	ReasonUnreadable           = "Unreadable"
	ReasonPatchRefused         = "PatchRefused"
	ReasonRebootRequired       = "RebootRequired"
	ReasonDrainBlocked         = "DrainBlocked"
)
