"""What gives a question away: the turns of phrase that the rules for questions go by."""

import re

WORD = re.compile(r"\d+(?:[.,]\d+)+|[^\W_]+(?:[-'’&][^\W_]+)*")
# A list of products, as EVI writes it.
LISTED = re.compile(r"^\d+\. \*\*(.+?)\*\*", re.MULTILINE)
LISTED_PRICE = re.compile(r"^\d+\. \*\*(.+?)\*\* \([^()]*?€ (\d+)[.,](\d\d)\)", re.MULTILINE)

WHO = re.compile(
    r"\b(wie|wat) (ben|bent) (jij|je|u)\b|\bwat (kun|kan|kunt) (jij|je|u)\b|\bwho are you\b|\bwhat (can|do) you do\b"
    r"|\bben (jij|je|u) een (mens|robot|computer|machine|bot|chatbot)\b|\bare you an? (human|robot|bot|machine|ai)\b"
)
# A language that is asked for, and not asked about.
IN_LANGUAGE = re.compile(
    r"\b(?:in|naar|into?|to) (?:het |'t )?(engels|english|nederlands|dutch)\b"
    r"|^(?:en |and )?(?:het |'t )?(engels|english|nederlands|dutch)(?= (?:graag|please|aub)|\W*$)"
)
MORE = re.compile(
    r"\b(vertel|geef|zeg|weet)\b.{0,60}\bmeer\b|\bmeer over vertellen\b|^(nog )?meer\b"
    r"|\bmeer (informatie|info|details|uitleg)\b|^((ga|en) )?(verder|door)\b|\b(leg|licht)\b.{0,60}\b(uit|toe)\b"
    r"|\b(snap|begrijp)\b.{0,20}\bniet\b|\bdon'?t understand\b"
    r"|\btell me more\b|\bmore (details|information|about)\b|^(go on|continue)\b"
)
OTHER_SUBJECT = re.compile(r"^(en|maar|and|but)?\s*((hoe|what|how) ?(zit het|about)|voor|bij|met|for|with)\b")
# The same question in other circumstances: "en als het regent?"
IN_CASE = re.compile(r"^(?:en|maar|and|but)? ?(?:wat )?(?:als|wanneer|indien|what if|if|when)\b")
# What people ask out of politeness.
HOW_ARE_YOU = re.compile(
    r"^(?:\w+\W+)?(?:hoe (?:gaat|is|gaat het met) (?:het|'t|je|jou|u)(?: (?:met )?(?:je|jou|u))?"
    r"|how are you(?: doing| today)?|how is it going)\W*$"
)
# "Wat moet er in een verbanddoos zitten?" is not about sitting.
IS_IN = re.compile(r"\bwat\b.*\bin\b.*\bzit(?:ten)?\b|\bwat zit(?:ten)?\b.*\bin\b")
FAREWELL = re.compile(
    r"\b(?:tot (?:straks|morgen|ziens|later|gauw|snel|dan|de volgende keer)|(?:(?:een )?fijne|prettige|goede) "
    r"(?:dag|avond|middag|weekend)(?: (?:nog|verder))?|(?:een )?(?:fijn|prettig|goed) weekend"
    r"|see you(?: later)?|have a (?:nice|good) (?:day|evening|weekend))\b"
)
ANOTHER_QUESTION = re.compile(r"\b(terug naar|andere vraag|ander onderwerp|back to|another question)\b")
NUMBER = re.compile(
    r"\b(hoeveel|hoe (hoog|lang|vaak|zwaar|hard|groot|diep|breed|oud|snel|ver|warm|koud|veel)"
    r"|vanaf (welke?|hoeveel|wanneer)|maxim\w*|minim\w*"
    r"|how (many|much|high|long|often|heavy|fast|old|far)|what (age|height|weight))\b"
)
# "Welke harnassen heb je?" asks for something to buy, "heb je tips?" does not.
HAVE = re.compile(
    r"\b(?:heb|hebt|hebben|verkoop|verkopen|lever|leveren) (?:je|jij|u|jullie)\b(?!.{0,60}\bnodig\b)"
    r"|\bin huis\b|\bdo you (?:have|sell|stock)\b"
)
TO_READ = re.compile(r"\b(?:informatie|info|richtlijn\w*|regels?|tips?|advies|uitleg|information|guidelines?|advice)\b")
LAW = re.compile(r"\bartikel(?:en)? \d|\b(?:arbowet|arbobesluit|arboregeling|arbeidstijdenwet|wet)\b")
PRICE = re.compile(r"\b((wat|hoeveel) kost(en)?|prijs|prijzen|hoe duur|price|prices|costs?|how much (is|are))\b")
CHEAPEST = re.compile(r"\b(goedkoopste?|goedkopere?|voordeligste?|voordeligere?|cheapest|cheaper)\b")
DEAREST = re.compile(r"\b(duurste?|most expensive)\b")
# Who doubts the last answer, or wants to know where it comes from.
DOUBT = re.compile(
    r"\b(?:weet|ben) (?:je|jij|u) (?:dat |daar |het )?(?:wel |heel |echt |honderd procent )*zeker\b"
    r"|\bklopt (?:dat|dit|het)(?: (?:wel|echt|ook))*\W*$"
    r"|\bis (?:dat|dit) (?:wel |echt |nog )*(?:zo|waar|juist|correct|actueel)\W*$"
    r"|\bwaar (?:staat|vind ik|lees ik|haal je|haalt u|heb je) (?:dat|dit|het)\b"
    r"(?: (?:vandaan|precies|in|te lezen))*\W*$"
    r"|\b(?:wat is|wat zijn|noem|geef)(?: me)? (?:je|jouw|uw|de) bron(?:nen)?\b"
    r"(?: (?:daarvan|hiervan|ervan|voor))*\W*$"
    r"|\bhoe (?:weet|kom) (?:je|u) (?:dat|daar|daaraan|daarbij)(?: (?:zo zeker|aan|bij))?\W*$"
    r"|^(?:echt|zeker weten|serieus)( waar)?\W*$"
    r"|\bare you (?:really |quite )?(?:sure|certain)\b|\bis (?:that|this) (?:really )?(?:right|correct|true)\W*$"
    r"|\b(?:what is|what's|what are) (?:your|the) sources?\W*$|\bwhere (?:does it|is that|do you) (?:say|said|get)\b"
    r"|\bhow do you know\W*$"
)
# "Onthoud dat ik in de bouw werk. Welke helm heb ik nodig?"; not "Onthoud je wat ik zei?".
REMEMBER = re.compile(
    r"^\W*(?:(?:wil|kun|kan|zou|could|can|will|would) (?:je|jij|u|you) )?(?:(?:alsjeblieft|aub|please) )?"
    r"(?:onthoud(?:en)?|remember)(?: (?:alsjeblieft|aub|please|even|goed|voor mij|voortaan))*(?: dat| that|:)+ +"
    r"(?P<fact>[^.!?\n]*(?:[.](?=\S)[^.!?\n]*)*)[.!?]*(?P<rest>.*)",
    re.IGNORECASE | re.DOTALL,
)
ABOUT_ME = re.compile(
    r"\bwat (weet|weten|onthoud|onthield) (je|jij|u|jullie) (allemaal |nog |eigenlijk )*(over|van) (mij|me)\b"
    r"|\bwat heb (je|jij|u) (allemaal )*(over|van) (mij|me) onthouden\b"
    r"|\bwhat (do|did) you (know|remember) about me\b|\bwhat have you remembered about me\b"
)
WISHES_LANGUAGE = re.compile(
    r"\b(?:antwoord\w*|answers?|answered|liever|liefst|graag|prefer\w*|voorkeur|alleen|only|speak|spreek|taal|language)\b"
)
# What a person's work is, where it is told as one of their facts.
TELLS_OF_WORK = re.compile(r"\b(?:werk\w*|work\w*|beroep|functie|baan|job|vak|sector|branche|ploeg|bedrijf|dienst)\b")
NAMED_LANGUAGE = re.compile(r"\b(engels|english|nederlands|dutch)(?:e|talig\w*)?\b")
DENIES = re.compile(r"\b(?:niet|geen|nooit|not|no|never|don't)\b")
# Who asks what was said, and not what holds: "wat zei ik vorige week over ladders", "waar hadden we het over".
PAST = re.compile(
    r"\bwat (?:zei|zeiden|vroeg|vroegen|vertelde|vertelden|antwoordde|adviseerde) (?:ik|je|jij|u|we|wij)\b"
    r"|\bwat (?:heb|had|hebt|hadden|hebben) (?:ik|je|jij|u|we|wij)\b.{0,60}\b"
    r"(?:gezegd|gevraagd|verteld|geantwoord|besproken|afgesproken|geadviseerd|aangeraden)\b"
    r"|\bwaar(?:over)? (?:hadden|hebben|spraken|praatten) (?:we|wij)\b"
    r"|\bwaar(?:over)? ging (?:het|ons).{0,30}\b(?:laatst|eerder|vorige|gisteren|toen|gesprek)\b"
    r"|\b(?:heb|had) ik\b.{0,20}\b(?:eerder|al|ooit|eens|weleens)\b.{0,60}\b(?:gevraagd|verteld|gezegd|genoemd)\b"
    r"|\b(?:what|when) (?:did|have|had) (?:i|you|we)\b.{0,30}"
    r"\b(?:say|said|ask|asked|tell|told|talk|talked|discuss|discussed|mention|mentioned)\b"
    r"|\b(?:have|had|did) (?:i|we)\b.{0,30}\b(?:ask|asked|talk|talked|discuss|discussed|tell|told|mention|mentioned)\b"
)
# What such a question is about comes after the last of these.
ABOUT = re.compile(r".*\b(?:over|naar|omtrent|about|regarding)\b(?! gehad\b| gesproken\b| gepraat\b)", re.DOTALL)
# A word that stands for a subject is followed by no noun: "als ik het per ongeluk breek", not "op het werk".
PRONOUN = re.compile(
    r"(?<!\bop )(?<!\bin )(?<!\bbij )(?<!\bvan )(?<!\bmet )(?<!\bvoor )(?<!\baan )(?<!\btijdens )"
    r"\b(?:het|die|ze|it|they|them|(?:dat|that)(?=\W*$))\b"
    r"(?! (?:werk|bedrijf|verschil|beste?|eigen|belangrijkste)\b)(?: (?P<after>\w+))?"
)
