"""The statements of a turn."""

CREATE_OR_TOUCH = """
    INSERT INTO sessions (id, owner_id, user_id, channel, external_id, expires_at, metadata)
    VALUES (%s, %s, %s, %s, %s, %s::timestamptz, %s::jsonb)
    ON CONFLICT (id) DO UPDATE SET last_accessed = greatest(sessions.last_accessed, clock_timestamp()),
            expires_at = coalesce(EXCLUDED.expires_at, sessions.expires_at)
        WHERE sessions.owner_id IS NOT DISTINCT FROM EXCLUDED.owner_id AND sessions.user_id = EXCLUDED.user_id
    RETURNING id, xmax = 0 AS is_new
"""

TOUCH = """
    UPDATE sessions SET last_accessed = greatest(last_accessed, clock_timestamp()),
        expires_at = coalesce(%s::timestamptz, expires_at)
    WHERE id = %s AND owner_id IS NOT DISTINCT FROM %s AND user_id = %s
    RETURNING id, false AS is_new
"""

# More is not told to a model: what somebody once wanted remembered must not crowd out what is asked.
MOST_FACTS_TOLD = 20

# The statements of one message are one transaction. They are several, because a statement sees the database as it was
# when it began: the second begins when the first has the session's lock, and so sees all that was said before the
# question.
BEGIN_TURN = """
    {first}
    WITH resolved AS ({resolve})
    , question AS (
        INSERT INTO messages (id, session_id, role, content, metadata, request_key, branch_hash)
        SELECT %s, id, 'user', %s, %s::jsonb, %s, %s::uuid FROM resolved WHERE {at_its_place}
        RETURNING id
    )
    SELECT id, is_new, EXISTS (SELECT FROM question) FROM resolved;

    SELECT id, session_id, role, content, status, metadata, created_at, seq FROM messages
    WHERE session_id = %s AND id <> %s AND superseded_by IS NULL
        -- An answer that failed before its first word says nothing.
        AND (content <> '' OR role = 'user')
        -- Where there is no question the session is somebody else's.
        AND EXISTS (SELECT FROM messages WHERE id = %s)
    ORDER BY created_at DESC, seq DESC LIMIT %s;

    SELECT text FROM facts WHERE {mine} AND user_id = %s AND status = 'approved'
    ORDER BY decided_at DESC NULLS LAST, created_at DESC LIMIT %s
"""

# First of all, so that what follows sees what those did who had the session before.
LOCK = "SELECT FROM sessions WHERE id = %s FOR NO KEY UPDATE;"

# Whether the last thing said is what the client believes it to be. An answer that failed without a word was never seen.
AT_ITS_PLACE = """
    (SELECT coalesce((
        SELECT branch_hash IS NOT DISTINCT FROM wanted.hash FROM messages
        WHERE session_id = wanted.session AND superseded_by IS NULL AND content <> ''
        ORDER BY created_at DESC, seq DESC LIMIT 1
    ), wanted.is_first AND resolved.is_new)
    FROM (VALUES (%s::uuid, %s::uuid, %s::boolean)) AS wanted (session, hash, is_first))
"""

# In a session's metadata: the title that a turn gave it.
MADE_TITLE = "made_title"

# Two statements here too: whether the question was left meanwhile is seen when nobody else has the session.
FINISH_TURN = f"""
    SELECT FROM sessions WHERE id = %s FOR NO KEY UPDATE;

    WITH answer AS (
        INSERT INTO messages (id, session_id, role, content, status, metadata, reply_to, branch_hash, superseded_by)
        SELECT %s, id, 'assistant', %s, %s, %s::jsonb, %s, %s::uuid,
            (SELECT superseded_by FROM messages WHERE id = %s)
        FROM sessions WHERE id = %s
        RETURNING id, session_id
    ), superseded AS (
        -- Another process may have answered the same question meanwhile; the last word is the answer.
        UPDATE messages SET superseded_by = %s FROM answer
        WHERE messages.session_id = answer.session_id AND messages.superseded_by IS NULL AND (
            messages.id = %s OR (messages.reply_to = %s AND messages.content <> '' AND %s)
        )
    ), entitled AS (
        -- A title that somebody chose stays, and one that was made here gives way to it.
        UPDATE sessions SET title = made.title, metadata = CASE jsonb_typeof(metadata)
            WHEN 'object' THEN metadata || jsonb_build_object('{MADE_TITLE}', made.title) ELSE metadata END
        FROM answer, (VALUES (%s::text)) AS made (title)
        WHERE sessions.id = answer.session_id AND sessions.title = '' AND made.title <> ''
    )
    SELECT id FROM answer
"""  # noqa: S608 - all that is put in is a constant
