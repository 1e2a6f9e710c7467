"""An ACL of the source's topic `t`."""

from formats.policies.acls import AclBinding

READ = AclBinding(
    resource_type="TOPIC",
    resource_name="t",
    pattern_type="LITERAL",
    principal="User:alice",
    host="*",
    operation="READ",
    permission="ALLOW",
)
